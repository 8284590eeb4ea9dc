-- Releases the messages that the lock on a session holds. No delivery counts as failed. Returns the number of messages.
-- @use entry index_entries index_name most_held read_many release
local function release_held(p, session)
  local indexed, members = index_entries(p, session, 'h', 0, 0, MOST_HELD), {}
  for i = 1, #indexed do
    members[i] = index_name(indexed[i])
  end
  local found = read_many('HMGET', p.entries, members)
  for i = 1, #members do
    local e = entry(found[i])
    e.session = session
    release(p, members[i], e, false, 0)
  end
  return #members
end
