-- Sets or removes the state of a session, as check_state has checked it.
-- @use turns inside
local function apply_state(p, plan)
  local session, field, stated = plan.session, '=' .. plan.session, plan.session .. '\255k'
  if plan.state then
    redis.call('HSET', p.states, field, plan.state)
    redis.call('ZADD', p.turns, TURNS.stated + p.now, 't' .. session)
    redis.call('ZADD', p.index, 0, stated)
  else
    redis.call('HDEL', p.states, field)
    redis.call('ZREM', p.turns, 't' .. session)
    redis.call('ZREM', p.index, stated)
  end
  p.bytes = p.bytes + plan.growth
  redis.call('HINCRBY', p.state, 'kept', plan.growth)
end
