#!lua
-- Stores messages of a topic for the subscriptions that they match. A message is stored once, no matter how many copies
-- of it there are. A message that matches no subscription is not stored, but its number is used up. A message that
-- names a future time waits on the topic. When the time has come, a call publishes the message by its number, with the
-- routes that are valid then. If the message is no longer there, it counts as dropped. A message with a due time also
-- waits if the sender has not judged it by the rules, even if the due time has passed.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- KEYS[31...] targets    for each subscription its keys state, order, entries, due, waiters; and also sessions, turns,
--   states if a plus follows its incarnation
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    columns     the fields before each payload: r route, c changes, t time to live, l level, i message id, d
--   due time, o the number under which the message was scheduled; nothing if there are no columns
-- ARGV[8]    incarnations of the subscriptions, as one text separated by blanks; a plus follows if the subscription
--   requires sessions
-- ARGV[9]    fence       of the holder of the routing role, or nothing
-- ARGV[10...] messages   for each message its columns, then its payload. A route is a list of copies separated by
--   blanks; it is a dash if the message waits because it was not judged. A copy is the place of a subscription, counted
--   from 1. If the copy has changed properties, `a` and their length follow, and then `t` and a time to live if the
--   copy has one of its own. If the copy goes to the dead-letter queue because a rule failed, `e` and a length follow.
--   The column c holds the changes of all copies, one after the other
--
-- Result: { more, the first number, the number of dropped messages, the numbers of scheduled messages as runs }
-- Refusals: call, DISABLED (sending is disabled), TOOLARGE (a message is too large; the detail is its index, counted
--   from 0), QUOTA (the entity is full; the detail gives its bytes and its quota), DUE (the entity is full, but due
--   work had to be done first), TARGET (a subscription does not exist here, or is being deleted; the detail is its
--   place), FENCED (another client has the role now)
-- @use advance announce_due band begin check_messages due_name finish flush index_add index_expiry known_message_ids
-- @use never record_key answer_repetition number_runs open_targets parse_copies refuse session_at sides
-- @use update_session_turns wake_waiters whole_number write_many
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
      local till = math.min(copy.ttl and p.now + math.min(copy.ttl, p.ttl) or expires, p.now + target.ttl, NEVER)
      local named = nth > 0 and string.format('%.0f', number) or ''
      p.bytes = p.bytes + #changes
      if copy.dead or target.index and not session then
        -- A failover may have lost dead letters that had numbers; these numbers must not be given again. This also
        -- holds for a failover that the subscription has not noticed yet (see apply_due).
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
          -- This copy expires earlier than its record says, or it is a further copy for the same subscription.
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
