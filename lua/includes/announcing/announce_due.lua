-- Tells the clients that maintain the namespace when something will be due in a partition. This time is given by the
-- plain clock of the partition, not by its logical clock. All partitions of a slot publish on one channel. A partition
-- publishes only if something is due sooner than it last announced, or if the announced time has passed. So an idle
-- partition never publishes, and a busy one publishes about once a lock duration. If the announced time has passed and
-- work is still due, the partition publishes nothing, because a client that received that announcement is about to
-- visit it. On a topic, messages that are due wait for a client that publishes them. As long as some wait and nothing
-- else will be due, the announced time stays, so that `upcoming` finds them.
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
    if first == NEVER and p.topic and redis.call('ZCOUNT', p.due, '-inf', p.now) > 0 then
      return
    end
    p.announced, p.marked = first, true
    if first < NEVER then
      local channel, text = redis.call('HGET', p.state, 'channel'), string.format('%s %.0f %.0f', p.state, p.now, first)
      redis.call('SPUBLISH', channel, text)
    end
  end
end
