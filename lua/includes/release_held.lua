-- Releases what the lock on a session holds, which counts no delivery. Returns how many messages that were.
-- @use entry
-- @use gather
-- @use most_held
-- @use release
-- @use seat_name
-- @use seats_of
local function release_held(p, session)
  local seats, members = seats_of(p, session, 'h', 0, 0, MOST_HELD), {}
  for i = 1, #seats do
    members[i] = seat_name(seats[i])
  end
  local found = gather('HMGET', p.entries, members)
  for i = 1, #members do
    local e = entry(found[i])
    e.session = session
    release(p, members[i], e, false, 0)
  end
  return #members
end
