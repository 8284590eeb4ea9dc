-- Returns the number of messages of a session that its holder has locked.
local function count_held(p, session)
  return redis.call('ZLEXCOUNT', p.index, '[' .. session .. '\255h', '(' .. session .. '\255i')
end
