-- Blocks a session until a time: it gives out no messages until then. A block that ends later stays as it is.
local function block_session(p, session, till)
  local before = redis.call('HGET', p.states, '~' .. session)
  if before and tonumber(before) >= till then
    return
  end
  redis.call('HSET', p.states, '~' .. session, string.format('%.0f', till))
  p.awaited[#p.awaited + 1] = till
  p.awaited[#p.awaited + 1] = 'b' .. session
end
