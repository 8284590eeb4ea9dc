-- Releases the messages that the lock on a session holds. No delivery counts as failed. Returns the number of messages.
-- @use entry most_held read_many release session_messages
local function release_held(p, session)
  local members = session_messages(p, session, 'h', 0, 0, MOST_HELD)
  local found = read_many('HMGET', p.entries, members)
  for i = 1, #members do
    local e = entry(found[i])
    e.session = session
    release(p, members[i], e, false, 0)
  end
  return #members
end
