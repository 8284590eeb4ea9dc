#!lua flags=allow-oom
-- Makes a partition, or gives it newer settings of its entity. What cannot change after creation is held fast.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    create      1 if the partition is to be made where it is missing
-- ARGV[8]    clock       server, or test; cannot change
-- ARGV[9]    status      Active, SendDisabled, ReceiveDisabled, or Disabled
-- ARGV[10]   lock        duration of a lock in ms
-- ARGV[11]   deliveries  that may fail before a message goes to the dead-letter queue
-- ARGV[12]   ttl         longest life of a message in ms, 9999999999999 for no bound
-- ARGV[13]   dead        1 if what expires goes to the dead-letter queue
-- ARGV[14]   window      of duplicate detection in ms, or nothing; whether there is one cannot change
-- ARGV[15]   quota       bytes that the partition may hold
-- ARGV[16]   largest     bytes of the largest message
-- ARGV[17]   shared      1 if the records belong to another entity, whose partition has been made; cannot change
-- ARGV[18]   sessions    1 if messages belong to sessions; cannot change
-- ARGV[19]   topic       1 if what is taken in is handed to subscriptions; cannot change
-- ARGV[20]   channel     on which it announces when something will be due, in its slot
--
-- Result: { the partition's version }
-- Refusals: GONE (not here, and not to be made), LAYOUT, STALE (older than the partition's), FIXED (a setting that cannot
--   change), DUE (something was due first, under the settings of before), BADCALL
-- @use begin overdue put_off refuse same_slot sentinel whole
local state, store = KEYS[1], KEYS[10]
local version = whole(ARGV[3], 1, 999999999999999)
local names = {
  [8] = 'clock', [9] = 'status', [10] = 'lock', [11] = 'deliveries', [12] = 'ttl', [13] = 'dead', [14] = 'window', [17] = 'shared',
  [18] = 'sessions', [19] = 'topic',
}
local statuses = { Active = true, SendDisabled = true, ReceiveDisabled = true, Disabled = true }
if #ARGV ~= 20 or not version or ARGV[2] == '' or ARGV[7] ~= '0' and ARGV[7] ~= '1' or ARGV[8] ~= 'server' and ARGV[8] ~= 'test'
  or not statuses[ARGV[9]] or not whole(ARGV[10], 1, 9999999999999) or not whole(ARGV[11], 1, 99999)
  or not whole(ARGV[12], 1, 9999999999999) or ARGV[13] ~= '0' and ARGV[13] ~= '1'
  or ARGV[14] ~= '' and not whole(ARGV[14], 1, 9999999999999) or not whole(ARGV[15], 0, 999999999999999)
  or not whole(ARGV[16], 0, 536870912) or ARGV[17] ~= '0' and ARGV[17] ~= '1'
  or ARGV[18] ~= '0' and ARGV[18] ~= '1' or ARGV[19] ~= '0' and ARGV[19] ~= '1'
  or ARGV[19] == '1' and (ARGV[17] == '1' or ARGV[18] == '1') or not same_slot(state, ARGV[20]) then
  return refuse('BADCALL', 'settings')
end

local s = redis.call('HMGET', state, 'layout', 'incarnation', 'version', 'status', 'clock', 'window', 'shared', 'sessions', 'topic')
local NEVER = '9999999999999'
local fields = {}
if s[1] then
  if s[1] ~= '1' then
    return refuse('LAYOUT', s[1])
  end
  if s[2] ~= ARGV[2] or s[4] == 'Deleting' then
    return refuse('GONE', 'partition')
  end
  if version < tonumber(s[3]) then
    return refuse('STALE', s[3])
  end
  if s[5] ~= ARGV[8] then
    return refuse('FIXED', 'clock')
  end
  if (s[6] == '') ~= (ARGV[14] == '') then
    return refuse('FIXED', 'window')
  end
  if s[7] ~= ARGV[17] then
    return refuse('FIXED', 'shared')
  end
  if s[8] ~= ARGV[18] then
    return refuse('FIXED', 'sessions')
  end
  if s[9] ~= ARGV[19] then
    return refuse('FIXED', 'topic')
  end
  if version > tonumber(s[3]) then
    local p = begin(KEYS, { ARGV[1], ARGV[2], s[3], '', '0', ARGV[6] }, 'configure', 6, false)
    local due_first = p and overdue(p) and put_off(p, function()
      return true
    end)
    if due_first then
      return due_first
    end
  end
else
  if ARGV[7] ~= '1' then
    return refuse('GONE', 'partition')
  end
  fields = {
    'layout', '1', 'incarnation', ARGV[2], 'run_id', ARGV[1], 'offset', '0', 'clk', '0', 'dead_seq', '0', 'head', NEVER,
    'horizon', '0', 'next_lock', NEVER, 'next_due', NEVER, 'waiting', '', 'biggest', '0', 'kept', '0', 'fence', '0',
  }
end
for i = 8, 19 do
  if names[i] then
    fields[#fields + 1] = names[i]
    fields[#fields + 1] = ARGV[i]
  end
end
for name, value in pairs({ version = ARGV[3], channel = ARGV[20], announced = not s[1] and NEVER or nil }) do
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
redis.call('HSET', state, unpack(fields))
if not s[1] then
  redis.call('ZADD', KEYS[2], SENTINEL.score, SENTINEL.name)
  redis.call('HSET', KEYS[3], SENTINEL.name, '')
end
if ARGV[17] == '0' then
  redis.call('HSET', store, 'layout', '1', 'quota', ARGV[15], 'largest', ARGV[16])
  redis.call('HSETNX', store, 'seq', '0')
  redis.call('HSETNX', store, 'bytes', '0')
end
return { version }
