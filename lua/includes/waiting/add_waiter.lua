-- Notes that a receiver waits at a side, by its channel, for so many messages. It is told when something will be due.
-- @use band
local function add_waiter(p, side, waiter, waiting_for)
  p.told = true
  if not p.waiting then
    p.changed.waiting = '1'
  end
  -- Those that have gone without a word go, a few at a time, whenever one comes.
  local gone = redis.call('ZRANGE', p.waiters, side.room * BAND, side.room * BAND + math.floor(p.now / 10) * 128 - 1, 'BYSCORE',
    'LIMIT', 0, 10)
  if #gone > 0 then
    redis.call('ZREM', p.waiters, unpack(gone))
  end
  redis.call('ZADD', p.waiters, side.room * BAND + math.floor(p.now / 10 + 3000) * 128 + math.min(waiting_for, 127),
    waiter .. ' ' .. side.prefix)
end
