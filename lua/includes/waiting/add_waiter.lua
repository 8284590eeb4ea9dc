-- Registers a receiver by its channel. The receiver waits on a side for a number of messages. The call's reply tells
-- the receiver when something will be due.
-- @use band
local function add_waiter(p, side, waiter, waiting_for)
  p.told = true
  if not p.waiting then
    p.changed.waiting = '1'
  end
  -- Remove waiters whose time has ended, a few at a time, whenever a new waiter comes.
  local gone = redis.call('ZRANGE', p.waiters, side.room * BAND, side.room * BAND + math.floor(p.now / 10) * 128 - 1, 'BYSCORE',
    'LIMIT', 0, 10)
  if #gone > 0 then
    redis.call('ZREM', p.waiters, unpack(gone))
  end
  redis.call('ZADD', p.waiters, side.room * BAND + math.floor(p.now / 10 + 3000) * 128 + math.min(waiting_for, 127),
    waiter .. ' ' .. side.prefix)
end
