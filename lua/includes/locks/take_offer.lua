-- Ends the offer that was made under a token, if one was made. If the receiver has read it, its messages get the full
-- lock duration, counted from now. Otherwise they are released, and no delivery counts as failed. A repetition finds
-- what the first call has left. Returns the time in ms until the lock of an offer that was read ends; 0 if it has ended
-- already, or if the receiver has not read an offer.
-- @use entry flush messages_of_lease release inside
-- @use write_lease
local function take_offer(p, token, was_read)
  local till, left, plus, runs = string.match(redis.call('HGET', p.leases, token) or '', '^(%d+) (%d+) (%+?)(.*)$')
  if not till or tonumber(till) <= p.logical then
    return 0
  end
  if was_read then
    write_lease(p, token, p.logical + p.lock, left, runs)
    return p.lock
  end
  if plus ~= '' then
    local names, entries = messages_of_lease(p, token)
    for i = 1, #names do
      release(p, names[i], entry(entries[i]), false, 0)
    end
    redis.call('HDEL', p.leases, token)
    redis.call('ZREM', p.locks, token)
    flush(p)
  end
  return 0
end
