-- Wakes the receivers that wait, on all sides: their next call tells them what is different now. Forgets them, except
-- those that wait in the session that they hold. Does so for up to 1,000 receivers; the others look again within 30
-- seconds.
local function dismiss_waiters(state, waiters)
  local some, forgotten = redis.call('ZRANGE', waiters, 0, 999), {}
  for i = 1, #some do
    local channel, side = string.match(some[i], '^(.*) (%a?)$')
    redis.call('SPUBLISH', channel, state .. ' ' .. side)
    if side ~= 'h' then
      forgotten[#forgotten + 1] = some[i]
    end
  end
  if #forgotten > 0 then
    redis.call('ZREM', waiters, unpack(forgotten))
  end
end
