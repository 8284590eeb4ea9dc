-- Tells those clients that maintain the namespace when something will be due in a partition, by its plain clock. All partitions
-- of a slot publish on one channel. A partition publishes only if something is due sooner than it said last, or if that time has
-- passed: so an idle one never does, and a busy one about once a lock duration. As long as something has been due since the time
-- that it said last, it publishes nothing: whoever heard of that time is coming. A topic publishes nothing here: what is scheduled
-- there is looked after in another way.
-- @use never
local function announce_due(p)
  local first, lock = p.next_due, p.next_lock
  if p.head < first then
    first = p.head
  end
  if lock < NEVER and lock - p.offset < first then
    first = math.max(0, lock - p.offset)
  end
  if first < p.announced or first > p.now and p.announced <= p.now then
    p.changed.announced = first
    if first < NEVER then
      local channel, text = redis.call('HGET', p.state, 'channel'), string.format('%s %.0f %.0f', p.state, p.now, first)
      redis.call('SPUBLISH', channel, text)
    end
  end
end
