-- Takes settled messages off their lease, and deletes the lease if it holds no more messages. A lease of a lock on a
-- session does not change. The holder of the session may be waiting because it has too many locked messages, so the
-- session is marked to be looked at again.
local function release_from_lease(p, mine, count)
  if count == 0 then
    return
  end
  if mine.session then
    p.touched[mine.session] = p.touched[mine.session] or true
    return
  end
  local lease = mine.lease
  lease.left = lease.left - count
  if lease.left > 0 then
    redis.call('HSET', p.leases, mine.token, string.format('%s %d %s', lease.till, lease.left, lease.runs))
  else
    redis.call('HDEL', p.leases, mine.token)
    redis.call('ZREM', p.locks, mine.token)
  end
end
