-- Takes what was settled off its lease; a lease that holds nothing any more goes.
local function loosen(p, mine, count)
  if count == 0 then
    return
  end
  if mine.left > count then
    redis.call('HSET', p.leases, mine.token, string.format('%s %d %s', mine.till, mine.left - count, mine.runs))
  else
    redis.call('HDEL', p.leases, mine.token)
    redis.call('ZREM', p.locks, mine.token)
  end
end
