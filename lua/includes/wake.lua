-- Wakes as many waiting receivers as there is work for, in the order in which they came. A receiver stands in `waiters` under
-- its channel, scored by room * 2^48 + until (in 10 ms) * 128 + how many messages it wants; once woken, in the room eight
-- further on, by when it was woken. One that was woken and has not come within a second is given up, and the next one is
-- woken by whoever calls next.
-- @use band
-- @use sides inside
local function wake(p)
  if redis.call('ZCARD', p.waiters) == 0 then
    redis.call('HSET', p.state, 'waiting', '')
    return
  end
  local now = math.floor(p.now / 10)
  for _, side in pairs(SIDES) do
    local work = redis.call('ZCOUNT', p.order, side.from, side.to)
    if work > 0 then
      local low, high = (side.room + 8) * BAND, (side.room + 9) * BAND - 1
      local woken = redis.call('ZRANGE', p.waiters, low, high, 'BYSCORE', 'WITHSCORES')
      for i = 1, #woken, 2 do
        local score = tonumber(woken[i + 1]) - low
        if math.floor(score / 128) < now - 100 then
          redis.call('ZREM', p.waiters, woken[i])
        else
          work = work - score % 128
        end
      end
      while work > 0 do
        local first = redis.call('ZRANGE', p.waiters, side.room * BAND, (side.room + 1) * BAND - 1, 'BYSCORE', 'LIMIT', 0, 1,
          'WITHSCORES')
        if not first[1] then
          break
        end
        local score = tonumber(first[2]) - side.room * BAND
        local wanted = score % 128
        if math.floor(score / 128) < now then
          redis.call('ZREM', p.waiters, first[1])
        else
          redis.call('ZADD', p.waiters, low + now * 128 + wanted, first[1])
          redis.call('SPUBLISH', first[1], p.state .. ' ' .. side.prefix)
          work = work - wanted
        end
      end
    end
  end
end
