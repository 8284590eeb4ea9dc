-- Removes a message that could be received, and is to be gone, from the index of its session. Whether the session has another such
-- message is no longer known.
-- @use index_remove record_session
local function index_expire(p, member, record)
  local session = record_session(record)
  index_remove(p, session, 'a', tonumber(member))
  p.touched[session] = true
end
