-- Blocks a session: until the given time, it gives out no messages. A block that already lasts longer does not change.
local function block_session(p, session, till)
  local before = redis.call('HGET', p.states, '~' .. session)
  if before and tonumber(before) >= till then
    return
  end
  redis.call('HSET', p.states, '~' .. session, string.format('%.0f', till))
  p.awaited[#p.awaited + 1] = till
  p.awaited[#p.awaited + 1] = 'b' .. session
end
