-- Computes what has become due in the partition since the last call, without writing anything. It handles the due
-- events in the order of their times: at most `share` events, and no more after it has read 2 MB of records, or
-- `p.room` bytes. A message that is found at the beginning of a level, or is activated, becomes a dead letter if its
-- record is lost. The kinds of events are: a lock ends, a scheduled message is activated, the block of a session ends,
-- a delay ends, a message expires. Events of one instant are handled in this order of kinds, and within a kind in the
-- order of tokens, numbers or names. Each event has its effect at its own time, not at the time of the call. If an
-- event makes another event due, the same pass handles that other event too. `apply_due` writes the result; `count` and
-- `peek` only show it.
--
-- All events have names in `due`, except the ends of locks and the expiries that are not indexed (see index_expiry).
-- Messages whose expiry is not indexed are found at the beginning of each level of priority. If the partition is
-- reserved, a level begins after the pinned messages, which do not expire and have no events.
--
-- Result, a table:
--   moved      each message that an event has moved, in order: its member, its former state (`was`: the letter of its
--              event, or L), its new state (`is`: ready, deferred, dead, gone), its entry `e`, its side, number and
--              session. A message that was scheduled has a new number and `name`, and its `head` and stored `record`.
--              `indexed` says whether its expiry is indexed. `index` is the name of its event in `due`, if it had one
--   by         a table from the member of each moved message to the message's item in `moved`
--   dead       the moved messages that are dead letters now, in the order in which they became dead letters
--   activated  the moved messages that were scheduled, in order
--   leases     the token of each changed lease, and the rest of the lease as text, or nothing if the lease has ended
--   unlocked   sessions whose locks have ended, and the tokens of these locks
--   unblocked  sessions whose block has ended
--   turns      a table from the name of each changed session to what the session does, and since when
--   horizon, head, seq: the values of these fields after the events; seq only if a message was activated
--   leap       how far the numbers jump ahead after a failover, which may have lost messages that had numbers
--   more       1 if due work was left over, else 0
-- @use band due_message entry entry_or_default epoch_leap index_entries index_name levels lost_record mark_dead never
-- @use read_many read_record record_session side_of state_after_lock turns
-- @use pinned_up_to inside
local function compute_due(p, share, turning)
  local now = p.now
  local o = {
    moved = {}, by = {}, dead = {}, activated = {}, leases = {}, unlocked = {}, unblocked = {}, turns = {},
    horizon = p.horizon, head = p.head, more = 0, leap = p.epoch and EPOCH_LEAP or 0,
  }
  local room, made, at_made = p.room or 2097152, {}, 1

  -- -- sessions -------------------------------------------------------------------------------------------------------

  -- Return the turn of a session, which each event updates. `ready` counts the messages that can be received.
  local function turn_of(name)
    local turn = o.turns[name]
    if not turn then
      local score = tonumber(redis.call('ZSCORE', p.turns, 's' .. name) or -1)
      turn = { ready = redis.call('ZLEXCOUNT', p.index, '[' .. name .. '\255a', '(' .. name .. '\255b'), does = 'none' }
      if score >= TURNS.blocked then
        turn.does = 'blocked'
      elseif score >= TURNS.locked then
        turn.does = 'locked'
      elseif score >= 0 then
        turn.does, turn.since = 'free', score - TURNS.free
      end
      o.turns[name] = turn
    end
    return turn
  end

  local function settle(turn, at)
    if turn.does == 'none' and turn.ready > 0 then
      turn.does, turn.since, turn.changed = 'free', at, true
    elseif turn.does == 'free' and turn.ready == 0 then
      turn.does, turn.since, turn.changed = 'none', nil, true
    end
  end

  local function supply(m, by, at)
    if turning and m.session then
      local turn = turn_of(m.session)
      turn.ready = turn.ready + by
      settle(turn, at)
    end
  end

  -- -- changes of a message ----------------------------------------------------------------------------------------

  local function touch(member, was, e)
    local side, number = side_of(member)
    local m = { member = member, name = member, was = was, e = e, side = side, number = number }
    o.moved[#o.moved + 1], o.by[member] = m, m
    return m
  end

  local function await(m, time)
    local first, last = at_made, #made + 1
    while first < last do
      local middle = math.floor((first + last) / 2)
      local other = made[middle]
      if other.time > time or other.time == time and other.m.number > m.number then
        last = middle
      else
        first = middle + 1
      end
    end
    table.insert(made, first, { time = time, m = m })
  end

  local function die(m, reason)
    mark_dead(m.e, m.name, reason)
    m.is = 'dead'
    o.dead[#o.dead + 1] = m
  end

  local function expire(m, at)
    if m.is == 'ready' or m.was == 'e' then
      supply(m, -1, at)
    end
    if p.dead then
      die(m, 'T')
    else
      m.is = 'gone'
    end
  end

  local function come_back(m, at)
    local expires = tonumber(m.e.expires)
    if expires <= at then
      expire(m, at)
      return
    end
    m.is, m.indexed = 'ready', expires < NEVER
    supply(m, 1, at)
    if expires <= now then
      await(m, expires)
    end
  end

  local function lapse(m, at)
    local fate = state_after_lock(p, m.side, m.e, true, at)
    if fate == 'dead' then
      die(m, 'M')
    elseif fate == 'deferred' then
      m.is = 'deferred'
    else
      come_back(m, at)
    end
  end

  -- -- the events -----------------------------------------------------------------------------------------------------

  local locks, due, members, entries = {}, {}, {}, {}
  local at_lock, at_due = 1, 1
  if p.next_lock <= p.logical then
    locks = redis.call('ZRANGE', p.locks, '-inf', p.logical, 'BYSCORE', 'LIMIT', 0, share + 1, 'WITHSCORES')
  end
  if p.next_due <= now and not p.topic then -- what is scheduled on a topic waits for a client that knows the rules
    due = redis.call('ZRANGE', p.due, '-inf', now, 'BYSCORE', 'LIMIT', 0, share + 1, 'WITHSCORES')
    for i = 1, #due, 2 do
      members[#members + 1] = string.byte(due[i]) == 98 and '-' or due_message(due[i])
    end
    entries = read_many('HMGET', p.entries, members)
  end

  -- Messages whose expiry is not indexed: in each level, the first message expires first.
  local levels = {}
  local above = p.head <= now and p.reserved and pinned_up_to(p) + 1 or 0
  for level = 0, p.head <= now and LEVELS - 1 or -1 do
    levels[#levels + 1] = { from = level * BAND + above, to = (level + 1) * BAND - 1, seen = 0, members = {}, at = 1 }
  end

  local function first_of(level)
    while not level.over do
      if level.at > #level.members then
        level.seen, level.at = level.seen + #level.members, 1
        level.members = redis.call('ZRANGE', p.order, level.from, level.to, 'BYSCORE', 'LIMIT', level.seen, 16)
        level.entries = read_many('HMGET', p.entries, level.members)
        if #level.members == 0 then
          level.over = true
          return nil
        end
      end
      local member, text = level.members[level.at], level.entries[level.at]
      if not o.by[member] then
        if level.told ~= member then
          level.told, level.record, level.e = member, nil, text and entry(text)
          if text then
            level.expires = tonumber(level.e.expires)
          else
            level.record = read_record(p.keys, member)
            level.expires = string.byte(level.record) == 120 and tonumber(string.sub(level.record, 16, 28)) or NEVER
            if level.record == LOST_RECORD then -- nobody knows when it expires, so it is taken away now, before others
              level.expires = 0
            end
          end
          level.number = tonumber(member)
        end
        if level.expires > now then
          level.over, level.fresh = true, level.expires
          return nil
        end
        return level
      end
      level.at = level.at + 1
    end
    return nil
  end

  -- Expire an active message as of the time `at`. `record` is its record, if it was already read.
  local function expire_active(member, e, record, at)
    local stored, lost = e and e.record ~= '' and e.record or member, record == LOST_RECORD
    if not record and (p.index or not e) then
      record = read_record(p.keys, stored)
    end
    e = e or entry_or_default(nil, record)
    local m = touch(member, 'e', e)
    m.session = p.index and record_session(record)
    room = room - e.size
    if lost then
      die(m, 'R')
    else
      expire(m, at)
    end
    return m
  end

  local alike = {}

  local function activate(member, at)
    local record = read_record(p.keys, member)
    if record == LOST_RECORD then
      local m = touch(member, 'a', entry_or_default(nil, record))
      room = room - m.e.size
      die(m, 'R')
      return m
    end
    local same = string.sub(record, 2, 15)
    if same ~= alike.of or at ~= alike.at then -- messages that were scheduled together have the same header
      local level, expires = string.sub(record, 2, 2), math.min(at + math.min(tonumber(string.sub(record, 3, 15)), p.ttl), NEVER)
      local head = 'a' .. level .. string.format('%013.0f', at)
      if expires < NEVER then
        head = 'x' .. string.sub(head, 2) .. string.format('%013.0f', expires)
      end
      alike = { of = same, at = at, level = level, expires = expires, head = head, text = string.format('%013.0f', expires) }
    end
    local head, expires = alike.head, alike.expires
    local m = touch(member, 'a', {
      level = alike.level, home = 'a', reason = '-', failures = 0, expires = alike.text, size = #head + #record - 15, record = '',
      before = '', changes = '',
    })
    o.seq = o.seq or tonumber(redis.call('HGET', p.store, 'seq')) + o.leap
    o.seq = o.seq + 1
    m.number, m.name, m.head, m.record = o.seq, string.format('%.0f', o.seq), head, record
    m.session = p.index and record_session(record)
    o.activated[#o.activated + 1] = m
    room = room - m.e.size
    m.is, m.indexed = 'ready', expires < o.horizon
    o.horizon = math.max(o.horizon, expires)
    supply(m, 1, at)
    if expires <= now then
      await(m, expires)
    end
    return m
  end

  local function lapse_session(token, name, at)
    -- The token always has the session's lock here. The check protects another receiver's lock if there is a defect.
    if redis.call('HGET', p.states, '!' .. name) ~= token then
      o.leases[#o.leases + 1] = { token = token }
      return 1
    end
    local indexed, members = index_entries(p, name, 'h', 0, 0, share), {}
    for i = 1, #indexed do
      members[i] = index_name(indexed[i])
    end
    local found = read_many('HMGET', p.entries, members)
    for i = 1, #members do
      local m = touch(members[i], 'L', entry(found[i]))
      m.session = name
      lapse(m, at)
    end
    if #members < share then
      o.unlocked[#o.unlocked + 1] = { token = token, session = name }
      if turning then
        local turn = turn_of(name)
        local till = not turn.unblocked and tonumber(redis.call('HGET', p.states, '~' .. name) or 0) or 0
        turn.changed, turn.does, turn.since = true, till > at and 'blocked' or 'none', nil
        turn.till = till
        settle(turn, at)
      end
    end
    return math.max(1, #members), #members >= share
  end

  local function lapse_lease(token, at)
    local till, left, runs = string.match(redis.call('HGET', p.leases, token), '^(%d+) (%d+) (.*)$')
    if string.byte(runs) == 64 then -- @: on a session
      return lapse_session(token, string.sub(runs, 2), at)
    end
    local members, rest, spent = {}, nil, 0
    for prefix, first, last in string.gmatch(runs, '([dt]?)(%d+)%-?(%d*)') do
      first = tonumber(first)
      last = tonumber(last) or first
      if not rest and spent < share then
        local stop = math.min(last, first + share - spent - 1)
        for number = first, stop do
          members[#members + 1] = prefix .. string.format('%.0f', number)
        end
        spent, first = spent + stop - first + 1, stop + 1
      end
      if first <= last then
        rest = rest or {}
        rest[#rest + 1] = string.format('%s%.0f-%.0f', prefix, first, last)
      end
    end
    local found = read_many('HMGET', p.entries, members)
    for i = 1, #members do
      if found[i] and string.sub(found[i], 1, 12) == token then
        lapse(touch(members[i], 'L', entry(found[i])), at)
        left = left - 1
      end
    end
    local kept = rest and tonumber(left) > 0 and string.format('%s %d %s', till, left, table.concat(rest, ','))
    o.leases[#o.leases + 1] = { token = token, text = kept }
    return spent, kept
  end

  while true do
    -- Find the earliest of all events; `kind` is its source. At one instant, only expiries come from several sources.
    -- So `number` is the number of the expiring message, and -1 for other events. Texts are not compared, because their
    -- order depends on the locale of the server.
    local kind, time, number, expiring
    if locks[at_lock] then
      kind, time, number = 'lock', math.min(now, tonumber(locks[at_lock + 1]) - p.offset), -1
    end
    local text, event = due[at_due], made[at_made]
    if text then
      local when = tonumber(due[at_due + 1])
      if not kind or when < time then
        kind, time, number = 'due', when, string.byte(text) == 101 and tonumber(members[(at_due + 1) / 2]) or -1
      end
    end
    if event and (not kind or event.time < time or event.time == time and event.m.number < number) then
      kind, time, number = 'made', event.time, event.m.number
    end
    for i = 1, #levels do
      local level = not levels[i].over and first_of(levels[i])
      if level and (not kind or level.expires < time or level.expires == time and level.number < number) then
        kind, time, number, expiring = 'level', level.expires, level.number, level
      end
    end
    if not kind then
      break
    end
    if share <= 0 or room <= 0 then
      o.more = 1
      break
    end
    local spent = 1
    if kind == 'lock' then
      local unfinished
      spent, unfinished = lapse_lease(locks[at_lock], time)
      at_lock = at_lock + 2
      if unfinished then
        o.more = 1
        break
      end
    elseif kind == 'made' then
      at_made = at_made + 1
      room = room - event.m.e.size
      expire(event.m, time)
    elseif kind == 'level' then
      expire_active(expiring.told, expiring.e, expiring.record, time)
    else
      local letter, member, found = string.byte(text), members[(at_due + 1) / 2], entries[(at_due + 1) / 2]
      local m
      at_due = at_due + 2
      if letter == 97 then -- a
        m = activate(member, time)
      elseif letter == 98 then -- b
        local name = string.sub(text, 2)
        o.unblocked[#o.unblocked + 1] = name
        if turning then
          local turn = turn_of(name)
          turn.unblocked = true
          if turn.does == 'blocked' then
            turn.changed, turn.does = true, 'none'
            settle(turn, time)
          end
        end
      elseif letter == 100 then -- d
        m = touch(member, 'd', entry(found))
        come_back(m, time)
      else -- e
        m = expire_active(member, found and entry(found), nil, time)
      end
      if m then
        m.index = text
      end
    end
    share = share - spent
  end

  -- Compute a lower bound of the next expiry among the messages whose expiry is not indexed.
  if o.more == 0 and #levels > 0 then
    o.head = NEVER
    for i = 1, #levels do
      o.head = math.min(o.head, levels[i].fresh or NEVER)
    end
  end
  for i = 1, #o.activated do
    local m = o.activated[i]
    if m.is == 'ready' and not m.indexed then
      o.head = math.min(o.head, tonumber(m.e.expires))
    end
  end
  return o
end
