-- Removes a message that is about to be deleted from the index of its session, where it could be received. Whether the
-- session has another such message must be found out again.
-- @use index_remove record_session
local function index_expire(p, member, record)
  local session = record_session(record)
  index_remove(p, session, 'a', tonumber(member))
  p.touched[session] = true
end
