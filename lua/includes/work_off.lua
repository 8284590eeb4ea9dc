-- Does what is due: locks that have ended, what goes by the clock, and the expiry of what was never indexed.
-- @use fade inside
-- @use fall_due inside
-- @use flush
-- @use lapse inside
local function work_off(p, share)
  if p.epoch then
    -- What a failover may have lost was given numbers that nobody must get again.
    redis.call('HINCRBY', p.store, 'seq', 16777216)
    p.dead_seq = p.dead_seq + 16777216
    p.changed.dead_seq = p.dead_seq
  end
  if p.topic then
    -- What is scheduled on a topic waits for one who knows the rules; here is only seen to it when that will be next.
    if p.next_due <= p.now then
      local after = '(' .. string.format('%.0f', p.now)
      local first = redis.call('ZRANGE', p.due, after, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
      p.next_due = tonumber(first[2] or 9999999999999)
      p.changed.next_due = p.next_due
    end
    return
  end
  if p.next_lock <= p.logical then
    share = lapse(p, share)
    flush(p)
    local first = redis.call('ZRANGE', p.locks, 0, 0, 'WITHSCORES')
    p.next_lock = tonumber(first[2] or 9999999999999)
    p.changed.next_lock = p.next_lock
  end
  if share > 0 and p.next_due <= p.now then
    share = fall_due(p, share)
    flush(p)
    local first = redis.call('ZRANGE', p.due, 0, 0, 'WITHSCORES')
    p.next_due = tonumber(first[2] or 9999999999999)
    p.changed.next_due = p.next_due
  end
  if share > 0 and p.head <= p.now then
    share = fade(p, share)
    flush(p)
  end
  if share <= 0 then
    p.more = 1
  end
end
