-- Keeps a session from giving out its messages until a time, or for as long as it was kept from it before, if that is longer.
local function block_session(p, session, till)
  local before = redis.call('HGET', p.states, '~' .. session)
  if before and tonumber(before) >= till then
    return
  end
  redis.call('HSET', p.states, '~' .. session, string.format('%.0f', till))
  p.awaited[#p.awaited + 1] = till
  p.awaited[#p.awaited + 1] = 'b' .. session
end
