#!lua flags=allow-oom
-- Replaces the record of a queue or topic, if it is still the record that the caller has seen. It also runs when memory
-- is short, because a deletion starts with it.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots, as the caller knows it
-- ARGV[3] name         in lower case
-- ARGV[4] incarnation  of the entity
-- ARGV[5] expected     the stamp of the record that the caller has seen
-- ARGV[6] stamp        of the new record, chosen at random by the caller. If it is one of the record's last few stamps,
--   the call is a repetition
-- ARGV[7] version      of the settings in the new record: the version before the change, or the next version
-- ARGV[8] ending       1 if the entity is being deleted: a topic accepts no subscription from then on; 2 if a removal
--   is taken back: the version rises, but this is no update; otherwise 0
-- ARGV[9] megabytes    the largest size of the messages in all its partitions
-- ARGV[10] checked     1 if the caller has checked the limits of the namespace
-- ARGV[11] description of the entity
--
-- Result: the record
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such entity, or it has another incarnation), CHANGED
--   (another caller changed the record first; the detail is the current version), LIMITED (the namespace
--   has limits; the detail has the numbers of entities and megabytes to be added), BADCALL
-- Facts: repeatable
-- @use add_stamp note_changes open_bucket parse_entity parse_stamp refuse refuse_unchecked server_time set_size
-- @use whole_number
local stamp, version = parse_stamp(ARGV[6]), whole_number(ARGV[7], 1, 999999999999999)
local megabytes = whole_number(ARGV[9], 0, 999999999999)
if not parse_stamp(ARGV[4]) or not parse_stamp(ARGV[5]) or not stamp or not version
  or not string.find(ARGV[8], '^[012]$') or not megabytes or ARGV[11] == '' then
  return refuse('BADCALL', 'entity')
end
local n, refusal = open_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[3])
if not there then
  return refuse('GONE', ARGV[3])
end
local entity, foreign = parse_entity(there, ARGV[3])
if not entity then
  return foreign
end
if entity.incarnation ~= ARGV[4] then
  return refuse('GONE', ARGV[3])
end
-- All stamps have the same length and contain no comma, so a search finds only whole stamps.
if string.find(entity.stamps, stamp, 1, true) then
  return there
end
if string.sub(entity.stamps, 1, #stamp) ~= ARGV[5] then
  return refuse('CHANGED', entity.version)
end
local before = tonumber(entity.version)
if version ~= before and version ~= before + 1 then
  return refuse('BADCALL', 'version')
end
local before_size = tonumber(redis.call('HGET', KEYS[1], 'size:' .. ARGV[3]) or 0)
local unchecked = ARGV[8] == '0' and refuse_unchecked(n, ARGV[10], 0, megabytes - before_size)
if unchecked then
  return unchecked
end

local updated = entity.updated
if version ~= before and ARGV[8] ~= '2' then
  updated = string.format('%.0f', math.max(tonumber(updated), tonumber(server_time())))
end
local stamps = add_stamp(entity.stamps, stamp)
local record = table.concat({ '2', ARGV[7], entity.id, entity.incarnation, stamps, entity.created, updated, ARGV[11] }, ' ')
redis.call('HSET', KEYS[2], ARGV[3], record)
set_size(KEYS[1], ARGV[3], before_size, megabytes)
if ARGV[8] == '1' then
  redis.call('HDEL', KEYS[7], ARGV[3])
end
note_changes(KEYS, n, ARGV[1], { ARGV[3] })
return record
