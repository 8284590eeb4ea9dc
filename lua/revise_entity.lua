#!lua flags=allow-oom
-- Replaces the record of a queue or topic, if it is still the record that the caller has seen. It also runs when memory
-- is short, because a deletion starts with it.
--
-- KEYS[1-7] registry   in the order of register_namespace.lua
-- ARGV[1] slots        the namespace's number of slots, as the caller knows it
-- ARGV[2] name         in lower case
-- ARGV[3] incarnation  of the entity
-- ARGV[4] expected     the stamp of the record that the caller has seen
-- ARGV[5] stamp        of the new record, chosen at random by the caller. If it is one of the record's last few stamps,
--   the call is a repetition
-- ARGV[6] version      of the settings in the new record: the version before the change, or the next version
-- ARGV[7] ending       1 if the entity is being deleted: a topic accepts no subscription from then on; 2 if a removal
--   is taken back: the version rises, but this is no update; otherwise 0
-- ARGV[8] megabytes    the largest size of the messages in all its partitions
-- ARGV[9] description  of the entity
--
-- Result: the record
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such entity, or it has another incarnation), CHANGED
--   (another caller changed the record first; the detail is the current version), QUOTA (the namespace may not have
--   this size), BADCALL
-- Facts: repeatable
-- @use add_stamp open_registry parse_entity parse_stamp refuse refuse_over_limit server_time set_size whole_number
local stamp, version = parse_stamp(ARGV[5]), whole_number(ARGV[6], 1, 999999999999999)
local megabytes = whole_number(ARGV[8], 0, 999999999999)
if not parse_stamp(ARGV[3]) or not parse_stamp(ARGV[4]) or not stamp or not version
  or not string.find(ARGV[7], '^[012]$') or not megabytes or ARGV[9] == '' then
  return refuse('BADCALL', 'entity')
end
local n, refusal = open_registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[2])
if not there then
  return refuse('GONE', ARGV[2])
end
local entity, foreign = parse_entity(there, ARGV[2])
if not entity then
  return foreign
end
if entity.incarnation ~= ARGV[3] then
  return refuse('GONE', ARGV[2])
end
-- All stamps have the same length and contain no comma, so a search finds only whole stamps.
if string.find(entity.stamps, stamp, 1, true) then
  return there
end
if string.sub(entity.stamps, 1, #stamp) ~= ARGV[4] then
  return refuse('CHANGED', entity.version)
end
local before = tonumber(entity.version)
if version ~= before and version ~= before + 1 then
  return refuse('BADCALL', 'version')
end
local before_size = tonumber(redis.call('HGET', KEYS[1], 'size:' .. ARGV[2]) or 0)
local over = ARGV[7] == '0' and refuse_over_limit(KEYS, 0, megabytes - before_size)
if over then
  return over
end

local updated = entity.updated
if version ~= before and ARGV[7] ~= '2' then
  updated = string.format('%.0f', math.max(tonumber(updated), tonumber(server_time())))
end
local stamps = add_stamp(entity.stamps, stamp)
local record = table.concat({ '2', ARGV[6], entity.id, entity.incarnation, stamps, entity.created, updated, ARGV[9] }, ' ')
redis.call('HSET', KEYS[2], ARGV[2], record)
set_size(KEYS[1], ARGV[2], before_size, megabytes)
if ARGV[7] == '1' then
  redis.call('HDEL', KEYS[7], ARGV[2])
end
return record
