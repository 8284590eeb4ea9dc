-- Does a share of the due work: writes the events that `compute_due` has computed.
-- @use epoch_leap flush never
-- @use bury compute_due discard group_records index_remove make_deferred make_ready store_record turns words_of inside
-- @use unlock_session write_many inside
local function apply_due(p, share)
  if p.epoch then
    -- A failover may have lost messages that had numbers; these numbers must not be given again.
    redis.call('HINCRBY', p.store, 'seq', EPOCH_LEAP)
    p.dead_seq, p.granted = p.dead_seq + EPOCH_LEAP, p.granted + EPOCH_LEAP
    p.marked, p.changed.granted = true, p.granted
    if p.noted then
      redis.call('HINCRBY', p.state, 'leaps', 1)
    end
    p.epoch = false
  end
  local o = compute_due(p, share, p.index)
  local old = {}
  local last = o.activated[#o.activated]
  local sent = last and tonumber(string.sub(last.head, 3, 15))
  if sent and sent > p.used then -- an entity with a scheduled message is in use until the message is enqueued
    p.used, p.changed.used = sent, sent
  end

  for i = 1, #o.moved do
    local m = o.moved[i]
    local e, session = m.e, m.session
    if m.was == 'L' then
      if session then
        index_remove(p, session, 'h', m.number)
      end
    elseif m.record then
      p.taken[#p.taken + 1] = m.member
      p.unawaited[#p.unawaited + 1] = m.index
      old[#old + 1] = m.member
      p.bytes = p.bytes - #m.record
      if session then
        index_remove(p, session, 's', tonumber(m.member))
      end
      if m.is ~= 'gone' then
        store_record(p, m.number, m.head .. string.sub(m.record, 16), 0)
      end
    else
      if m.index then
        p.unawaited[#p.unawaited + 1] = m.index
      end
      if session then
        index_remove(p, session, 'a', m.number)
      end
    end

    if p.noted and (m.is == 'gone' or m.was == 'L' and m.is ~= 'dead') then
      p.noted[#p.noted + 1] = (m.is == 'gone' and 'x' or 'l') .. m.name
    end
    if m.is == 'ready' then
      e.session = session
      make_ready(p, m.name, m.side, m.number, e, m.indexed)
    elseif m.is == 'deferred' then
      e.session = session
      make_deferred(p, m.member, m.side, m.number, e)
    elseif m.is == 'gone' and m.was ~= 'a' then
      discard(p, m.member, e)
    end
  end
  for i = 1, #o.dead do
    bury(p, o.dead[i].name, o.dead[i].e, o.dead[i].e.reason)
  end

  if #old > 0 then
    for key, group in pairs((group_records(p.keys, old))) do
      write_many('HDEL', key, group)
    end
    redis.call('HINCRBY', p.store, 'seq', #o.activated)
  end
  for i = 1, #o.leases do
    local lease = o.leases[i]
    if lease.text then
      redis.call('HSET', p.leases, lease.token, lease.text)
    else
      redis.call('HDEL', p.leases, lease.token)
      redis.call('ZREM', p.locks, lease.token)
    end
  end
  for prefix, begun in pairs(o.reach) do
    if begun and begun.changed and begun.lives then
      words_of(p, { begun.key })
      local w = p.credits.words[begun.key]
      w.hands, p.credits.dirty[w.key] = begun.left, w
    elseif begun and begun.changed then
      redis.call('HSET', p.words, prefix, string.format('%.0f %.0f ', begun.begun, begun.left) .. begun.key)
    end
  end
  p.suspected = p.suspected or o.suspects
  for i = 1, #o.unblocked do
    redis.call('HDEL', p.states, '~' .. o.unblocked[i])
    p.unawaited[#p.unawaited + 1] = 'b' .. o.unblocked[i]
  end
  for i = 1, #o.unlocked do
    unlock_session(p, o.unlocked[i].session, o.unlocked[i].token)
  end
  for name, turn in pairs(o.turns) do
    if turn.does == 'locked' then
      p.touched[name], p.moved = p.touched[name] or true, p.moved or turn.unblocked
    elseif turn.changed then
      p.touched[name] = nil
      p.moved = p.moved or turn.does == 'free'
      if turn.does == 'none' then
        redis.call('ZREM', p.turns, 's' .. name)
      else
        redis.call('ZADD', p.turns, turn.does == 'free' and TURNS.free + turn.since or TURNS.blocked + turn.till, 's' .. name)
      end
    end
  end
  flush(p)

  local lock = redis.call('ZRANGE', p.locks, 0, 0, 'WITHSCORES')
  local due
  if p.topic then -- the scheduled messages of a topic that are due wait for a client that knows the rules
    due = redis.call('ZRANGE', p.due, '(' .. string.format('%.0f', p.now), '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  else
    due = redis.call('ZRANGE', p.due, 0, 0, 'WITHSCORES')
  end
  p.next_lock, p.next_due = tonumber(lock[2] or NEVER), tonumber(due[2] or NEVER)
  p.head, p.horizon, p.more, p.marked = o.head, o.horizon, o.more, true
end
