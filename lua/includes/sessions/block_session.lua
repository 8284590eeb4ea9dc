-- Blocks a session: until the given time, it gives out no messages. A block that already lasts longer does not change.
-- @use add_pair
local function block_session(p, session, till)
  local before = redis.call('HGET', p.states, '~' .. session)
  if before and tonumber(before) >= till then
    return
  end
  redis.call('HSET', p.states, '~' .. session, string.format('%.0f', till))
  add_pair(p.awaited, till, 'b' .. session)
end
