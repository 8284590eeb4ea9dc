-- Notes that a token holds so many messages, given as runs, or a session, until a time. (A session may be any bytes, and what
-- `string.format` puts in with %s ends at a zero.)
local function write_lease(p, token, till, count, runs)
  redis.call('HSET', p.leases, token, string.format('%.0f %d ', till, count) .. runs)
  redis.call('ZADD', p.locks, till, token)
  if till < p.next_lock then
    p.next_lock = till
    p.changed.next_lock = till
    p.sooner = math.min(p.sooner, till - p.offset)
  end
end
