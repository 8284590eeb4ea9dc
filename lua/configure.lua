#!lua flags=allow-oom
-- Creates a partition, or gives it newer settings of its entity. Settings that are fixed at creation cannot change.
-- Newer settings end all credit.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    create      1 to create the partition if it does not exist
-- ARGV[8]    channel     the channel in the partition's slot on which the partition announces when something will be
--   due
-- ARGV[9]    birth       a random text that a new partition keeps: no other partition ever has it
-- ARGV[10]   use         1 if a user changed the entity: the change is then a use of the partition
-- ARGV[11...] settings   the values of the settings, in the order of the table SETTINGS, which engine/_settings.py
--   declares
--
-- Result: { the partition's version }
-- Refusals: GONE (the partition does not exist and `create` is not 1, or it has another incarnation, or it is being
--   deleted), LAYOUT, STALE (the caller's version is older than the partition's), FIXED (a setting that cannot change),
--   DUE (due work had to be done first, under the old settings), BADCALL (malformed, or messages of a partition that is
--   to be reserved no longer are pinned)
-- Facts: repeatable
-- @use begin has_overdue marks_text never parse_stamp refuse refuse_while_due same_slot sentinel server_time settings
-- @use whole_number
-- @use end_credit parse_pin ready_levels
local state, store = KEYS[1], KEYS[9]
local version = whole_number(ARGV[3], 1, 999999999999999)
local given, valid = {}, #ARGV == 10 + #SETTINGS
for i = 1, valid and #SETTINGS or 0 do
  local setting, value = SETTINGS[i], ARGV[10 + i]
  given[setting.name] = value
  valid = valid and (setting.words and setting.words[value] or setting.most and whole_number(value, setting.least, setting.most)
    or setting.optional and value == '')
end
if not valid or not version or not string.find(ARGV[2], '^%S+$') or ARGV[7] ~= '0' and ARGV[7] ~= '1'
  or given.topic == '1' and (given.shared == '1' or given.sessions == '1')
  or given.reserved == '1' and (given.topic == '1' or given.sessions == '1' or given.forwards == '1') or not same_slot(state, ARGV[8])
  or not parse_stamp(ARGV[9]) or ARGV[10] ~= '0' and ARGV[10] ~= '1' then
  return refuse('BADCALL', 'settings')
end

local s = redis.call('HMGET', state, unpack(STATE))
local text = s[STATE.settings] or ''
local w = { WORDS.match(text) }
local words, limits = { ARGV[2], ARGV[3] }, { 'layout', '2' }
for i = 1, #SETTINGS do
  local setting = SETTINGS[i]
  if setting.with_records then
    limits[#limits + 1], limits[#limits + 2] = setting.name, given[setting.name]
  else
    words[setting.position] = given[setting.name]
  end
end
local settings = table.concat(words, ' ')
local fields, newer, ends = { 'settings', settings }, false, nil
if s[STATE.layout] then
  if s[STATE.layout] ~= '2' or not s[STATE.marks] then
    return refuse('LAYOUT', s[STATE.layout])
  end
  if w[WORDS.incarnation] ~= ARGV[2] or w[WORDS.status] == 'Deleting' then
    return refuse('GONE', 'partition')
  end
  if version < tonumber(w[WORDS.version]) then
    return refuse('STALE', w[WORDS.version])
  end
  for i = 1, #SETTINGS do
    local setting = SETTINGS[i]
    local before, after = w[setting.position], given[setting.name]
    if setting.fixed and before ~= after and (not setting.optional or before == '' or after == '') then
      return refuse('FIXED', setting.name)
    end
  end
  if w[WORDS.reserved] == '1' and given.reserved ~= '1' then
    local pin = parse_pin(redis.call('HGET', state, 'pin'))
    local _, committed = ready_levels({ order = KEYS[2] }, 0, pin.floor)
    if pin.upto > pin.floor or committed > 0 then
      return refuse('BADCALL', 'messages are pinned')
    end
  end
  newer = version > tonumber(w[WORDS.version])
  if newer then
    local p = begin(KEYS, { ARGV[1], ARGV[2], w[WORDS.version], '', '0', ARGV[6] }, 'configure', 6, false, true, false)
    local due_first = p and has_overdue(p) and refuse_while_due(p, function()
      return true
    end)
    if due_first then
      return due_first
    end
    ends = p and p.credit ~= '' and p
  end
else
  if ARGV[7] ~= '1' then
    return refuse('GONE', 'partition')
  end
  local marks = marks_text({
    offset = 0, dead_seq = 0, head = NEVER, horizon = 0, next_lock = NEVER, next_due = NEVER, biggest = 0, announced = NEVER,
  })
  -- The fields of STATE come first, in their order, because a server may search the fields from the first to the last.
  fields = {
    'layout', '2', 'settings', settings, 'marks', marks, 'run_id', ARGV[1], 'clk', '0', 'granted', '0', 'used', '0',
    'calling', '', 'credit', '', 'kept', '0', 'route_fence', '0', 'birth', ARGV[9], 'pin', '',
    'called', '', 'once_bytes', '0', 'once_forgotten', '0', 'settlements', '0', 'leaps', '0',
  }
end
local used = given.clock == 'test' and whole_number(ARGV[6], 0, NEVER - 1) or given.clock == 'server' and server_time()
used = used and (ARGV[10] == '1' or not s[STATE.layout]) and string.format('%.0f', used)
if used then
  fields[#fields + 1] = 'used'
  fields[#fields + 1] = used
  if given.shared == '1' and redis.call('EXISTS', store) == 1 then
    redis.call('HSET', store, 'used', used)
  end
end
fields[#fields + 1], fields[#fields + 2] = 'channel', ARGV[8]
local begins = s[STATE.layout] and (given.forwards == '1' and w[WORDS.forwards] ~= '1'
  or given.forwards_dead == '1' and w[WORDS.forwards_dead] ~= '1')
if begins then -- messages that are there already may wait to be moved now
  fields[#fields + 1], fields[#fields + 2] = 'calling', '1'
end
redis.call('HSET', state, unpack(fields))
if begins then
  redis.call('SPUBLISH', ARGV[8], state .. ' move')
end
if ends then
  end_credit(ends)
  redis.call('HSET', state, 'credit', ends.credit)
end
if not s[STATE.layout] then
  redis.call('ZADD', KEYS[2], SENTINEL.score, SENTINEL.name)
  redis.call('HSET', KEYS[3], SENTINEL.name, '')
end
if given.shared == '0' then
  redis.call('HSET', store, unpack(limits))
  redis.call('HSETNX', store, 'seq', '0')
  redis.call('HSETNX', store, 'bytes', '0')
  redis.call('HSETNX', store, 'used', '0')
end
return { version }
