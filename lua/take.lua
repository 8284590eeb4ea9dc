#!lua
-- Stores the messages of a batch that another partition, the origin, has frozen; or decides that they cannot be stored.
-- The partition remembers its verdict on the last batch of each origin for good, so every repetition gets this verdict,
-- whatever has changed since then. So each batch is stored at most once.
--
-- A batch of an origin that is not known here is judged only if the mover knows the door, a text that changes whenever
-- an origin is forgotten. A mover first learns the door and then reads the batch from its origin. So it cannot bring
-- back a batch of an origin that was forgotten in the meantime.
--
-- A call may bring batches of several origins. Each is judged by itself, one after the other.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- KEYS[36...] targets    if this is a topic: the keys of the subscriptions, as in publish.lua. Such a call has one
--   batch
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    origin      of the first batch: the id of the entity, a colon, and the birth of the partition
-- ARGV[8]    batch       its number
-- ARGV[9]    names       of the messages at the origin, as runs
-- ARGV[10]   door        as last learnt, or nothing
-- ARGV[11]   operation   send or publish; or toolarge, if one call cannot carry the messages. The verdict on the batch
--   is then TOOLARGE, unless it was judged before
-- ARGV[12]   size        the number of the arguments that follow for this batch
-- ARGV[13...] messages   the arguments that the script of this name has after `call`, none for toolarge; then for each
--   further batch the same, from its origin on
--
-- Result: { more, and for each batch the verdict, its detail, names as runs, and origins }. The verdict is taken; again
--   if the origin was rolled back and the messages in `names` are here already, and then none was stored; over if a
--   later batch of the origin was judged before; door if the mover must first learn the door, which is the detail;
--   later if due work must be done first, after other batches of the call were stored; or one of the codes QUOTA,
--   DISABLED, TOOLARGE and SESSIONS, with the detail that this refusal has. If the origin is new here, `origins` has
--   some other origins
-- Refusals: call, DUE (the entity is full, but due work had to be done first), TARGET (a subscription does not exist
--   here, or is being deleted; the detail is its place)
-- Facts: repeatable, laneless, at_limit
-- @use advance apply_publish apply_send check_publish check_send finish finish_targets key_count name_runs
-- @use names_of_runs parse_runs parse_stamp refuse whole_number
local batches, at = {}, 7
while at <= #ARGV and #batches < 100 do
  local b = { origin = ARGV[at], number = whole_number(ARGV[at + 1], 1, 999999999999999), names = ARGV[at + 2], own = {} }
  b.door, b.operation, b.size = ARGV[at + 3], ARGV[at + 4], whole_number(ARGV[at + 5], 0, #ARGV - at - 5)
  if not b.size or not string.find(b.origin, '^[%w_.-]+:[%w_-]+$') or #b.origin > 128 or not b.number
    or b.door ~= '' and not parse_stamp(b.door)
    or b.operation ~= 'send' and b.operation ~= 'publish' and (b.operation ~= 'toolarge' or b.size > 0) then
    return refuse('BADCALL', 'take')
  end
  b.runs, b.total = parse_runs(b.names)
  if not b.runs then
    return refuse('BADCALL', 'take')
  end
  for i = 1, b.size do
    b.own[i] = ARGV[at + 5 + i]
  end
  batches[#batches + 1], at = b, at + 6 + b.size
end
if at <= #ARGV or #batches > 1 and #KEYS > KEY_COUNT then
  return refuse('BADCALL', 'take')
end

-- Remembers a verdict, and returns the answer. A repetition writes the verdict again, so that a WAIT after this script
-- has a write that replicas can confirm.
local function answer(b, verdict, held, strangers)
  redis.call('HSET', p.lasting, 'in:' .. b.origin, string.format('%.0f %s ', b.number, held) .. verdict)
  local code, detail = string.match(verdict, '^(%S+) ?(.*)$')
  return { code, code == 'again' and '' or detail, code == 'again' and detail or '', strangers or {} }
end

-- Returns those messages of a batch that the batch before it, with these names, has brought.
local function repeated_names(b, taken)
  -- Mostly both texts are one run. Only if they are many are the names compared one by one.
  local before, seen, here = taken ~= '-' and parse_runs(taken) or {}, nil, {}
  if #before * #b.runs > 1000 then
    seen = {}
    for _, name in ipairs(names_of_runs(taken)) do
      seen[name] = true
    end
    for _, name in ipairs(names_of_runs(b.names)) do
      here[#here + 1] = seen[name] and name
    end
  end
  for i = 1, seen and 0 or #b.runs do
    for j = 1, #before do
      local one, other = b.runs[i], before[j]
      for common = math.max(one.first, other.first), one.prefix == other.prefix and math.min(one.last, other.last) or 0 do
        here[#here + 1] = one.prefix .. string.format('%.0f', common)
      end
    end
  end
  return here
end

-- Judges a batch: stores its messages, or decides that they cannot be stored. Returns the answer; or nil and a refusal.
local stored = false
local function judge(b)
  local last, taken, said = string.match(redis.call('HGET', p.lasting, 'in:' .. b.origin) or '', '^(%d+) (%S+) (.+)$')
  local strangers = {}
  if last then
    if b.number == tonumber(last) then
      return answer(b, said, taken)
    elseif b.number < tonumber(last) then
      return { 'over', '', '', {} }
    end
    local here = repeated_names(b, taken)
    if #here > 0 then
      return answer(b, 'again ' .. name_runs(here), taken)
    end
  else
    local door = redis.call('HGET', p.lasting, 'door') or ''
    if b.door ~= door then
      return { 'door', door, '', {} }
    end
    local some = redis.call('HRANDFIELD', p.lasting, 10) or {}
    for i = 1, #some do
      strangers[#strangers + 1] = string.match(some[i], '^in:(.*)$')
    end
  end
  if b.operation == 'toolarge' then
    return answer(b, 'TOOLARGE', taken or '-', strangers)
  end

  local plan, refused, count
  if b.operation == 'send' then
    plan, refused = check_send(p, b.own, 1)
    count = plan and #KEYS == KEY_COUNT and plan.count
  else
    plan, refused = check_publish(p, KEYS, b.own, 1, KEY_COUNT + 1)
    count = plan and refused == #KEYS + 1 and plan.incoming.count
  end
  if not plan then
    local code = string.match(refused.err, '^%S+')
    if code == 'QUOTA' or code == 'DISABLED' or code == 'TOOLARGE' or code == 'SESSIONS' then
      return answer(b, refused.err, taken or '-', strangers)
    end
    return nil, refused
  end
  if count ~= b.total then
    return nil, refuse('BADCALL', 'messages')
  end
  if not stored then
    advance(p, 100)
  end
  stored, p.advanced, p.beside = true, true, { p } -- from now on, only a batch is refused, and not the call
  if b.operation == 'send' then
    apply_send(p, b.own, plan)
    p.unwritten = p.bytes -- for the check of the next batch
  else
    apply_publish(p, b.own, plan)
    finish_targets(plan.subscriptions)
  end
  return answer(b, 'taken', b.names, strangers)
end

local reply, written = { 0 }, false
for i = 1, #batches do
  local found, refused = judge(batches[i])
  if not found and not written then
    return refused
  end
  found = found or { 'later', '', '', {} }
  written = written or found[1] ~= 'door' and found[1] ~= 'over'
  for j = 1, 4 do
    reply[#reply + 1] = found[j]
  end
end
if stored then
  finish(p, '')
end
reply[1] = p.more
return reply
