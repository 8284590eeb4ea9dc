-- Ends the lock on a session, of which nothing is held any more. Who had it waits for nothing of it any more.
-- @use turns
local function unlock(p, session, token)
  redis.call('HDEL', p.leases, token)
  redis.call('ZREM', p.locks, token)
  local waiter = redis.call('HGET', p.states, 'w' .. session)
  if waiter then
    p.left = redis.call('ZREM', p.waiters, waiter .. ' h') == 1 or p.left
  end
  redis.call('HDEL', p.states, '!' .. session, 'w' .. session)
  local blocked = tonumber(redis.call('HGET', p.states, '~' .. session) or 0)
  if blocked > p.now then
    redis.call('ZADD', p.turns, TURNS.blocked + blocked, 's' .. session)
  else
    redis.call('ZREM', p.turns, 's' .. session)
    p.touched[session] = p.touched[session] or true
  end
end
