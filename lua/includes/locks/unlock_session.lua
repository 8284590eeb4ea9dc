-- Ends the lock on a session that has no held messages left. Its holder stops waiting for the next message. The calling
-- code decides what the session does next.
local function unlock_session(p, session, token)
  redis.call('HDEL', p.leases, token)
  redis.call('ZREM', p.locks, token)
  local waiter = redis.call('HGET', p.states, 'w' .. session)
  if waiter then
    p.left = redis.call('ZREM', p.waiters, waiter .. ' h') == 1 or p.left
  end
  redis.call('HDEL', p.states, '!' .. session, 'w' .. session)
end
