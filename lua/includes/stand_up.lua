-- Takes a message of a session that could be received from its place there, since it is to be gone: whether there is another
-- one is certain no longer.
-- @use session_in
-- @use unseat
local function stand_up(p, member, record)
  local session = session_in(record)
  unseat(p, session, 'a', tonumber(member))
  p.touched[session] = true
end
