-- Ends the lock on a session, of which nothing is held any more. Who had it waits for nothing of it any more. What the session
-- does next is for the caller to say.
local function unlock_session(p, session, token)
  redis.call('HDEL', p.leases, token)
  redis.call('ZREM', p.locks, token)
  local waiter = redis.call('HGET', p.states, 'w' .. session)
  if waiter then
    p.left = redis.call('ZREM', p.waiters, waiter .. ' h') == 1 or p.left
  end
  redis.call('HDEL', p.states, '!' .. session, 'w' .. session)
end
