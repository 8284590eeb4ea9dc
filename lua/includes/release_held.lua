-- Releases what the lock on a session holds, at most `share` messages, and says how many that were. With `counted` these were
-- deliveries that failed.
-- @use entry
-- @use gather
-- @use release
-- @use seat_name
-- @use seats_of
local function release_held(p, session, counted, share)
  local seats, members = seats_of(p, session, 'h', 0, 0, share), {}
  for i = 1, #seats do
    members[i] = seat_name(seats[i])
  end
  local found = gather('HMGET', p.entries, members)
  for i = 1, #members do
    local e = entry(found[i])
    e.session = session
    release(p, members[i], e, counted, 0)
  end
  return #members
end
