-- Takes a message of a session that could be received from its place there, since it is to be gone: whether there is another
-- one is certain no longer.
-- @use index_remove session_in
local function index_expire(p, member, record)
  local session = session_in(record)
  index_remove(p, session, 'a', tonumber(member))
  p.touched[session] = true
end
