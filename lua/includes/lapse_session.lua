-- Ends the lock on a session that nobody renewed: what was held of it was delivered in vain. At most `share` messages are
-- released, and one that holds nothing counts as one; as long as some are left, the session cannot be accepted.
-- @use release_held
-- @use unlock
local function lapse_session(p, session, token, share)
  if redis.call('HGET', p.states, '!' .. session) ~= token then -- it cannot be; but nobody else's session is touched for it
    redis.call('HDEL', p.leases, token)
    redis.call('ZREM', p.locks, token)
    return share - 1
  end
  local released = release_held(p, session, true, share)
  if released < share then
    unlock(p, session, token)
  else
    p.touched[session] = p.touched[session] or true
  end
  return share - math.max(1, released)
end
