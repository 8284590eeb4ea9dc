-- Ends the lock on a session that nobody renewed: what was held of it was delivered in vain. At most `share` messages are
-- released, and one that holds nothing counts as one; as long as some are left, the session cannot be accepted.
-- @use entry
-- @use gather
-- @use release
-- @use seat_name
-- @use seats_of
-- @use unlock
local function lapse_session(p, session, token, share)
  if redis.call('HGET', p.states, '!' .. session) ~= token then -- it cannot be; but nobody else's session is touched for it
    redis.call('HDEL', p.leases, token)
    redis.call('ZREM', p.locks, token)
    return share - 1
  end
  local seats, members = seats_of(p, session, 'h', 0, 0, share), {}
  for i = 1, #seats do
    members[i] = seat_name(seats[i])
  end
  local found = gather('HMGET', p.entries, members)
  for i = 1, #members do
    local e = entry(found[i])
    e.session = session
    release(p, members[i], e, true, 0)
  end
  if #members < share then
    unlock(p, session, token)
  else
    p.touched[session] = p.touched[session] or true
  end
  return share - math.max(1, #members)
end
