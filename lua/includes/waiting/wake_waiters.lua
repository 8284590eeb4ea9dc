-- Wakes as many waiting receivers as there is work for, in the order in which they came. Wakes one more receiver if
-- something will be due before that receiver would look again by itself. If the entity requires sessions, the work is
-- the free sessions.
--
-- A wake takes the server about 40 us, so a call wakes at most `wakes` receivers on a side, or 16. The next call of
-- each of them wakes others in the same way, as long as there is work, so a thousand receivers are soon woken.
--
-- A member of `waiters` is the receiver's channel, a blank, and the letter of its side. Its score is room * 2^48 + the
-- end of its wait (in 10 ms) * 128 + the number of messages that it wants. When a receiver is woken, its member moves
-- to room + 8, and its score then has the time of the waking instead of the end of the wait. If a woken receiver has
-- not called within a second, the next call removes it and wakes the next receiver.
--
-- A receiver that leaves may have been the only one that knew the next due time. So another receiver is woken to learn
-- that time, unless the reply to this call gives that time to a receiver.
--
-- Mostly few receivers wait, and all of them on one side. So the function first reads some waiters, and skips the sides
-- that have none.
-- @use band
-- @use next_due side_named turns inside
local function wake_waiters(p, wakes)
  local some, there = redis.call('ZRANGE', p.waiters, 0, 7), {}
  if #some == 0 then
    redis.call('HSET', p.state, 'waiting', '')
    return
  end
  for i = 1, #some do
    there[string.match(some[i], ' (%a?)$')] = true
  end
  local now = math.floor(p.now / 10)

  -- Return the side, unless no receiver waits there or was woken there.
  local function side_with_waiters(prefix)
    return (there[prefix] or #some == 8) and side_named(prefix)
  end

  -- Wake the first receiver that still waits, unless its wait ends at `till` or earlier. Return the number of messages
  -- that it wants, or nil if no receiver was woken.
  local function wake_first(side, till)
    local first = redis.call('ZRANGE', p.waiters, side.room * BAND + now * 128, (side.room + 1) * BAND - 1, 'BYSCORE', 'LIMIT', 0, 1,
      'WITHSCORES')
    local score = first[1] and tonumber(first[2]) - side.room * BAND
    if not score or math.floor(score / 128) * 10 <= till then
      return nil
    end
    redis.call('ZADD', p.waiters, (side.room + 8) * BAND + now * 128 + score % 128, first[1])
    redis.call('SPUBLISH', string.sub(first[1], 1, -2 - #side.prefix), p.state .. ' ' .. side.prefix)
    return score % 128
  end

  for _, prefix in ipairs({ p.index and 's' or '', 'd', 't' }) do
    local side, work = (prefix ~= '' or not p.reserved) and side_with_waiters(prefix), 0
    if side and side.room == 3 then
      work = redis.call('ZCOUNT', p.turns, TURNS.free, TURNS.locked - 1)
    elseif side then
      work = redis.call('ZCOUNT', p.order, side.from, side.to)
    end
    if work > 0 then
      local low, high = (side.room + 8) * BAND, (side.room + 9) * BAND - 1
      local woken = redis.call('ZRANGE', p.waiters, low, high, 'BYSCORE', 'LIMIT', 0, 64, 'WITHSCORES')
      for i = 1, #woken, 2 do
        local score = tonumber(woken[i + 1]) - low
        if math.abs(now - math.floor(score / 128)) > 100 then
          redis.call('ZREM', p.waiters, woken[i])
        else
          work = work - score % 128
          if i == 127 then -- each of the others, which were woken later, wants a message at least
            work = work - math.max(0, redis.call('ZCOUNT', p.waiters, low, high) - 64)
          end
        end
      end
      local left = wakes or 16
      while work > 0 and left > 0 do
        local wanted = wake_first(side, 0)
        if not wanted then
          break
        end
        work, left = work - wanted, left - 1
      end
    end
  end
  if p.left and not p.told then
    local due
    if p.locks then
      due = next_due(p)
      due = due > 0 and p.now + due or math.huge
    else -- the call publishes to this subscription: use the lower bounds of its due times
      due = math.min(p.head, p.next_due, p.next_lock - p.offset)
    end
    p.sooner = math.min(p.sooner, due)
  end
  if p.sooner < math.huge then
    for _, prefix in ipairs(p.index and { 's', 'h', 'd', 't' } or { '', 'd', 't' }) do
      local side = side_with_waiters(prefix)
      if side and wake_first(side, p.sooner) then
        break
      end
    end
  end
end
