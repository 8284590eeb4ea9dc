-- Takes what was settled off its lease; a lease that holds nothing any more goes. The lock on a session stays; there may be room
-- for other messages of it now, for which who has it may be waiting.
local function release_from_lease(p, mine, count)
  if count == 0 then
    return
  end
  if mine.session then
    p.touched[mine.session] = p.touched[mine.session] or true
    return
  end
  if mine.left > count then
    redis.call('HSET', p.leases, mine.token, string.format('%s %d %s', mine.till, mine.left - count, mine.runs))
  else
    redis.call('HDEL', p.leases, mine.token)
    redis.call('ZREM', p.locks, mine.token)
  end
end
