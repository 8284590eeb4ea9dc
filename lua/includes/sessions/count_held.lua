-- How many messages of a session its holder has out.
local function count_held(p, session)
  return redis.call('ZLEXCOUNT', p.index, '[' .. session .. '\255h', '(' .. session .. '\255i')
end
