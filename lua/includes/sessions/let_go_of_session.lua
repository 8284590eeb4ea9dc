-- Ends the lock on a session that has no held messages left, and lets the session wait for its next holder.
-- @use turns unlock_session
local function let_go_of_session(p, session, token)
  unlock_session(p, session, token)
  local blocked = tonumber(redis.call('HGET', p.states, '~' .. session) or 0)
  if blocked > p.now then
    redis.call('ZADD', p.turns, TURNS.blocked + blocked, 's' .. session)
  else
    redis.call('ZREM', p.turns, 's' .. session)
    p.touched[session] = p.touched[session] or true
  end
end
