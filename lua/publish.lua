#!lua
-- Takes messages of a topic in for those of its subscriptions that they are for. A message is stored once, however many copies
-- of it there are; one that is for none is gone, though its number is used up. One that names a time to come waits on the topic
-- until it is published by its number, with the routes of then; what is not there any more then counts as dropped. So does one whose
-- time has passed, if it was not judged.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- KEYS[31...] targets    of each subscription: state, order, entries, due, waiters; and, where its incarnation ends in a plus,
--   sessions, turns, states
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    columns     what stands before each payload: r route, c changes, t time to live, l level, i message id, d due time,
--   o number under which it was scheduled, or nothing of that
-- ARGV[8]    incarnations of the subscriptions, in one text with blanks between, with a plus where messages belong to sessions
-- ARGV[9]    fence       of who holds the role of routing, or nothing
-- ARGV[10...] messages   for each its columns (a route is copies with blanks between: the place of a subscription, from 1 on, and
--   for changed properties `a` and their length, and `t` and a time to live if that is another one; or `e` and their length for a
--   copy that goes to the dead-letter queue, because a rule failed; or a dash for one that waits and was not judged; changes are
--   those of all copies, one behind the other), and its payload
--
-- Result: { more, the first number, how many were dropped, the numbers of those that were scheduled, as runs }
-- Refusals: call, DISABLED (sending is), TOOLARGE (a message, by its place), QUOTA (the entity is full: bytes, of how many), DUE (it
--   is full, but something was due first),
--   TARGET (a subscription, by its place, is not here, or no longer), FENCED (somebody else has got the role)
-- @use advance announce_due band begin check_messages due_name finish flush index_add index_expiry known_message_ids never record_key
-- @use answer_repetition number_runs open_targets parse_copies refuse session_at sides update_session_turns wake_waiters whole_number write_many
local p, refusal = begin(KEYS, ARGV, 'publish', 9, true)
if not p then
  return refusal
end
if p.repeated then
  local first, dropped, numbers = string.match(p.repeated, '^(%d+) (%d+) ?(.*)$')
  return answer_repetition(p, { 0, tonumber(first), tonumber(dropped), numbers })
end
local incoming, refused = check_messages(p, ARGV, ARGV[7], 'rctlido', 10)
if not incoming then
  return refused
end
local subscriptions, gone = open_targets(p, KEYS, ARGV[8])
if not subscriptions then
  return gone
end
local copies, widths, total = parse_copies(ARGV, incoming, subscriptions)
local fence = ARGV[9] ~= '' and whole_number(ARGV[9], 1, 999999999999999)
if not copies or fence == nil then
  return refuse('BADCALL', 'routes')
end
if fence then
  if tonumber(redis.call('HGET', p.state, 'fence')) > fence then
    return refuse('FENCED', ARGV[9])
  end
  p.changed.fence = ARGV[9]
end

advance(p, 100)

local known = known_message_ids(p, ARGV, incoming)
local number = redis.call('HINCRBY', p.store, 'seq', total) - total + 1
local first, dropped, ids, refs, fields, scheduled = number, 0, {}, {}, {}, {}
local now = string.format('%013.0f', p.now)
local columns = incoming.columns
for i = 1, incoming.count do
  local at = 10 + (i - 1) * incoming.stride
  local level, ttl, payload = '', NEVER, ARGV[at + incoming.stride - 1]
  local due = columns.d and tonumber(ARGV[at + columns.d])
  local origin, keep = columns.o and ARGV[at + columns.o] or '', true
  if origin ~= '' then
    local key = record_key(p.keys, tonumber(origin))
    local waited = tonumber(redis.call('ZSCORE', p.order, origin) or 0) == SIDES[''].scheduled + tonumber(origin)
    local record = waited and redis.call('HGET', key, origin)
    if record then
      level, ttl, payload = string.sub(record, 2, 2), tonumber(string.sub(record, 3, 15)), string.sub(record, 16)
      p.taken[#p.taken + 1] = origin
      p.unawaited[#p.unawaited + 1] = due_name('a', origin)
      p.bytes = p.bytes - #record
      redis.call('HDEL', key, origin)
    else
      keep = false
    end
  else
    local id = known and columns.i and ARGV[at + columns.i] or ''
    if id ~= '' then
      keep = not known[id]
      if keep then
        known[id] = true
        ids[#ids + 1] = p.now
        ids[#ids + 1] = id
      end
    end
    level = columns.l and ARGV[at + columns.l] or ''
    ttl = columns.t and tonumber(ARGV[at + columns.t]) or NEVER
  end
  level = level == '' and '0' or level
  local record
  if not keep then
    dropped = dropped + 1
  elseif due and (due > p.now or not copies[i]) then
    record = 's' .. level .. string.format('%013.0f', ttl) .. payload
    p.placed[#p.placed + 1] = SIDES[''].scheduled + number
    p.placed[#p.placed + 1] = number
    p.awaited[#p.awaited + 1] = due
    p.awaited[#p.awaited + 1] = due_name('a', number)
    scheduled[#scheduled + 1] = number
  elseif #copies[i] > 0 then
    local expires = math.min(p.now + math.min(ttl, p.ttl), NEVER)
    record = 'a' .. level .. now .. payload
    if expires < NEVER then
      record = 'x' .. level .. now .. string.format('%013.0f', expires) .. payload
    end
    local session = session_at(payload, 1)
    local before, nth = nil, 0
    for j = 1, #copies[i] do
      local copy = copies[i][j]
      local target, changes = copy.target, copy.changes
      nth = target == before and nth + 1 or 0
      before = target
      local own = number + nth
      local till, named = math.min(copy.ttl and p.now + math.min(copy.ttl, p.ttl) or expires, p.now + target.ttl, NEVER), nth > 0 and string.format('%.0f', number) or ''
      p.bytes = p.bytes + #changes
      if copy.dead or target.index and not session then
        -- Numbers that a failover may have lost must not come again, also where it was not noticed yet (see work_off).
        target.dead_seq = target.dead_seq + (target.leaps and 16777217 or 1)
        target.changed.dead_seq, target.leaps = target.dead_seq, false
        local name = string.format('d%.0f', target.dead_seq)
        target.placed[#target.placed + 1] = SIDES.d.ready + target.dead_seq
        target.placed[#target.placed + 1] = name
        target.entered[#target.entered + 1] = name
        target.entered[#target.entered + 1] = string.format('            0a%s00000%013.0f%d;%.0f;', copy.dead and 'F' or 'S', NEVER,
          #record, number) .. changes
      else
        target.placed[#target.placed + 1] = tonumber(level) * BAND + own
        target.placed[#target.placed + 1] = own
        if till < expires or changes ~= '' or nth > 0 then
          -- It lives shorter here than its record says, or is another one.
          target.entered[#target.entered + 1] = own
          target.entered[#target.entered + 1] = string.format('            %sa-00000%013.0f%d;%s;', level, till, #record, named) .. changes
        end
        index_expiry(target, own, till)
        if target.index then
          index_add(target, session, 'a', own)
          target.touched[session] = 'ready'
        end
      end
      if #record > target.biggest then
        target.biggest, target.changed.biggest = #record, #record
      end
    end
    if #copies[i] > 1 then
      refs[#refs + 1] = number
      refs[#refs + 1] = #copies[i]
    end
  end
  if record then
    local key = record_key(p.keys, number)
    fields[key] = fields[key] or {}
    fields[key][#fields[key] + 1] = number
    fields[key][#fields[key] + 1] = record
    p.bytes = p.bytes + #record
    if #record > p.biggest then
      p.biggest, p.changed.biggest = #record, #record
    end
  end
  number = number + widths[i]
end
for key, list in pairs(fields) do
  write_many('HSET', key, list)
end
if #refs > 0 then
  write_many('HSET', p.refs, refs)
end
if #ids > 0 then
  write_many('ZADD', p.dedup, ids)
end
for i = 1, #subscriptions do
  local target = subscriptions[i]
  flush(target)
  if next(target.touched) then
    update_session_turns(target)
  end
  announce_due(target)
  for name, value in pairs(target.changed) do
    redis.call('HSET', target.state, name, value)
  end
  if target.waiting then
    wake_waiters(target)
  end
end
local numbers = #scheduled > 0 and number_runs('', scheduled) or ''
finish(p, string.format('%.0f %d %s', first, dropped, numbers))
return { p.more, first, dropped, numbers }
