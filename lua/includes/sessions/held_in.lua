-- How many messages of a session are held by who has its lock.
local function held_in(p, session)
  return redis.call('ZLEXCOUNT', p.seats, '[' .. session .. '\255h', '(' .. session .. '\255i')
end
