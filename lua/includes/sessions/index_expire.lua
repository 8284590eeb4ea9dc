-- Removes a message that could be received, and is about to be deleted, from the index of its session. Marks the
-- session to be looked at again, because it may have no other such message.
-- @use index_remove record_session
local function index_expire(p, member, record)
  local session = record_session(record)
  index_remove(p, session, 'a', tonumber(member))
  p.touched[session] = true
end
