#!lua
-- Adds a queue or topic to the registry under a name that is not in use. The entity gets an id that no other entity has
-- had or will have.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots, as the caller knows it
-- ARGV[3] name         in lower case
-- ARGV[4] incarnation  chosen at random by the caller. It distinguishes a repetition of this call from another
--   creation, and is the first stamp of the record
-- ARGV[5] topic        1 if the entity is a topic
-- ARGV[6] megabytes    the largest size of the messages in all its partitions
-- ARGV[7] bucket       the two characters with which ids in this bucket begin
-- ARGV[8] checked      1 if the caller has checked the limits of the namespace
-- ARGV[9] description  of the entity
--
-- Result: the record
-- Refusals: NAMESPACE, LAYOUT (also if the name is in use and its record is missing or cannot be read), SLOTS,
--   EXISTS (another entity has the name), LIMITED (the namespace has limits; the detail has the numbers of entities and
--   megabytes to be added), BADCALL
-- Facts: repeatable
-- @use base36 next_number note_changes open_bucket parse_entity parse_stamp refuse refuse_unchecked refuse_unreadable
-- @use server_time set_size tally_text whole_number
local incarnation, megabytes = parse_stamp(ARGV[4]), whole_number(ARGV[6], 0, 999999999999)
if not incarnation or ARGV[3] == '' or ARGV[5] ~= '0' and ARGV[5] ~= '1' or not megabytes
  or not string.find(ARGV[7], '^%w%w$') or ARGV[9] == '' then
  return refuse('BADCALL', 'entity')
end
local n, refusal = open_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[3])
if there then
  local entity, foreign = parse_entity(there, ARGV[3])
  if not entity then
    return foreign
  end
  if entity.incarnation ~= incarnation then
    return refuse('EXISTS', ARGV[3])
  end
  return there
end
if redis.call('ZSCORE', KEYS[3], ARGV[3]) then
  return refuse_unreadable('record', nil, ARGV[3]) -- subscriptions of the entity may be left
end
local unchecked = refuse_unchecked(n, ARGV[8], 1, megabytes)
if unchecked then
  return unchecked
end

local id = ARGV[7] .. base36(next_number(n, ARGV[1]))
local now = server_time()
local record = table.concat({ '2', '1', id, incarnation, incarnation, now, now, ARGV[9] }, ' ')
redis.call('HSET', KEYS[2], ARGV[3], record)
redis.call('ZADD', KEYS[3], 0, ARGV[3])
redis.call('HSET', KEYS[8], id, ARGV[3])
redis.call('ZREM', KEYS[10], ARGV[3])
set_size(KEYS[1], ARGV[3], 0, megabytes)
if ARGV[5] == '1' then
  local counted = { incarnation = incarnation, mark = '1', subscriptions = 0, sql = 0, correlation = 0 }
  redis.call('HSET', KEYS[7], ARGV[3], tally_text(counted))
end
note_changes(KEYS, n, ARGV[1], { ARGV[3] })
return record
