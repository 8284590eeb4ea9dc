#!lua
-- Stores the messages of a batch that another partition, the origin, has frozen; or decides that they cannot be stored.
-- The partition remembers its verdict on the last batch of each origin for good, so every repetition gets this verdict,
-- whatever has changed since then. So each batch is stored at most once.
--
-- A batch of an origin that is not known here is judged only if the mover knows the door, a text that changes whenever
-- an origin is forgotten. A mover first learns the door and then reads the batch from its origin. So it cannot bring
-- back a batch of an origin that was forgotten in the meantime.
--
-- KEYS[1-33] partition   in the order of includes/calls/begin.lua
-- KEYS[34...] targets    if this is a topic: the keys of the subscriptions, as in publish.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    origin      the id of the entity, a colon, and the birth of the partition
-- ARGV[8]    batch       its number
-- ARGV[9]    names       of the messages at the origin, as runs
-- ARGV[10]   door        as last learnt, or nothing
-- ARGV[11]   operation   send or publish; or toolarge, if one call cannot carry the messages. The verdict on the batch
--   is then TOOLARGE, unless it was judged before
-- ARGV[12...] messages   the arguments that the script of this name has after `call`; none for toolarge
--
-- Result: { more, verdict, detail, names as runs, origins }. The verdict is taken; again if the origin was rolled back
--   and the messages in `names` are here already, and then none was stored; over if a later batch of the origin was
--   judged before; door if the mover must first learn the door, which is the detail; or one of the codes QUOTA,
--   DISABLED, TOOLARGE and SESSIONS, with the detail that this refusal has. If the origin is new here, `origins` has
--   some other origins
-- Refusals: call, DUE (the entity is full, but due work had to be done first), TARGET (a subscription does not exist
--   here, or is being deleted; the detail is its place)
-- Facts: repeatable, laneless, at_limit
-- @use advance apply_publish apply_send begin check_publish check_send finish finish_targets key_count name_runs
-- @use names_of_runs parse_runs parse_stamp refuse whole_number
local p, refusal = begin(KEYS, ARGV, 'take', 11, true)
if not p then
  return refusal
end
local origin, number, operation = ARGV[7], whole_number(ARGV[8], 1, 999999999999999), ARGV[11]
local runs, total = parse_runs(ARGV[9])
if not string.find(origin, '^[%w_.-]+:[%w_-]+$') or #origin > 128 or not number or not runs or p.lane ~= ''
  or ARGV[10] ~= '' and not parse_stamp(ARGV[10])
  or operation ~= 'send' and operation ~= 'publish' and (operation ~= 'toolarge' or #ARGV > 11) then
  return refuse('BADCALL', 'take')
end
local field, strangers = 'in:' .. origin, {}
local last, taken, said = string.match(redis.call('HGET', p.lasting, field) or '', '^(%d+) (%S+) (.+)$')

-- Remember a verdict, and return the answer. A repetition writes the verdict again, so that a WAIT after this script
-- has a write that replicas can confirm.
local function answer(verdict, held)
  redis.call('HSET', p.lasting, field, string.format('%.0f %s ', number, held) .. verdict)
  local code, detail = string.match(verdict, '^(%S+) ?(.*)$')
  return { p.more, code, code == 'again' and '' or detail, code == 'again' and detail or '', strangers }
end

if last then
  if number == tonumber(last) then
    return answer(said, taken)
  elseif number < tonumber(last) then
    return { 0, 'over', '', '', {} }
  end
  -- Mostly both texts are one run. Only if they are many are the names compared one by one.
  local before, seen, here = taken ~= '-' and parse_runs(taken) or {}, nil, {}
  if #before * #runs > 1000 then
    seen = {}
    for _, name in ipairs(names_of_runs(taken)) do
      seen[name] = true
    end
    for _, name in ipairs(names_of_runs(ARGV[9])) do
      here[#here + 1] = seen[name] and name
    end
  end
  for i = 1, seen and 0 or #runs do
    for j = 1, #before do
      local one, other = runs[i], before[j]
      for common = math.max(one.first, other.first), one.prefix == other.prefix and math.min(one.last, other.last) or 0 do
        here[#here + 1] = one.prefix .. string.format('%.0f', common)
      end
    end
  end
  if #here > 0 then
    return answer('again ' .. name_runs(here), taken)
  end
else
  local door = redis.call('HGET', p.lasting, 'door') or ''
  if ARGV[10] ~= door then
    return { 0, 'door', door, '', {} }
  end
  local some = redis.call('HRANDFIELD', p.lasting, 10) or {}
  for i = 1, #some do
    strangers[#strangers + 1] = string.match(some[i], '^in:(.*)$')
  end
end

if operation == 'toolarge' then
  return answer('TOOLARGE', taken or '-')
end
local plan, refused, count
if operation == 'send' then
  plan, refused = check_send(p, ARGV, 12)
  count = plan and #KEYS == KEY_COUNT and plan.count
else
  plan, refused = check_publish(p, KEYS, ARGV, 12, KEY_COUNT + 1)
  count = plan and refused == #KEYS + 1 and plan.incoming.count
end
if not plan then
  local code = string.match(refused.err, '^%S+')
  if code == 'QUOTA' or code == 'DISABLED' or code == 'TOOLARGE' or code == 'SESSIONS' then
    return answer(refused.err, taken or '-')
  end
  return refused
end
if count ~= total then
  return refuse('BADCALL', 'messages')
end

advance(p, 100)
if operation == 'send' then
  apply_send(p, ARGV, plan)
else
  apply_publish(p, ARGV, plan)
  finish_targets(plan.subscriptions)
end
finish(p, '')
return answer('taken', ARGV[9])
