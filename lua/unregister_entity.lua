#!lua flags=allow-oom
-- Removes an entity from the registry, if its record is still the one that the caller has seen. A call for an entity
-- that is already gone succeeds. The rules of a subscription are removed first, a limited number with each call.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots, as the caller knows it
-- ARGV[3] name         of the entity (a subscription: its path) in lower case
-- ARGV[4] incarnation  of the entity
-- ARGV[5] expected     the stamp of the record that the caller has seen
-- ARGV[6] share        the largest number of rules that one call removes
--
-- Result: { 1, or 0 if this incarnation was already gone; 1 if the entity is still there because it may have more
--   rules, otherwise 0 }
-- Refusals: NAMESPACE, LAYOUT, SLOTS, CHANGED (another caller changed the record first; the detail is the current
--   version), BADCALL (also if a topic or a subscription was not first marked as being deleted)
-- Facts: repeatable
-- @use note_changes open_bucket parse_entity parse_stamp refuse set_size whole_number
local share = whole_number(ARGV[6], 1, 1000)
if not parse_stamp(ARGV[4]) or not parse_stamp(ARGV[5]) or not share then
  return refuse('BADCALL', 'entity')
end
local n, refusal = open_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[3])
if not there then
  return { 0, 0 }
end
local entity, foreign = parse_entity(there, ARGV[3])
if not entity then
  return foreign
end
if entity.incarnation ~= ARGV[4] then
  return { 0, 0 }
end
if string.sub(entity.stamps, 1, #ARGV[5]) ~= ARGV[5] then
  return refuse('CHANGED', entity.version)
end
if redis.call('HEXISTS', KEYS[7], ARGV[3]) == 1 then
  return refuse('BADCALL', 'state')
end
-- The byte "!" follows the blank, so the range ends after the last rule of the subscription.
local rules = redis.call('ZRANGEBYLEX', KEYS[6], '(' .. ARGV[3] .. ' ', '(' .. ARGV[3] .. '!', 'LIMIT', 0, share)
if #rules > 0 then
  redis.call('HDEL', KEYS[5], unpack(rules))
  redis.call('ZREM', KEYS[6], unpack(rules))
end
if #rules == share then
  return { 1, 1 }
end
set_size(KEYS[1], ARGV[3], tonumber(redis.call('HGET', KEYS[1], 'size:' .. ARGV[3]) or 0), 0)
redis.call('HDEL', KEYS[2], ARGV[3])
redis.call('ZREM', KEYS[3], ARGV[3])
redis.call('ZREM', KEYS[4], ARGV[3])
redis.call('HDEL', KEYS[8], entity.id)
note_changes(KEYS, n, ARGV[1], { ARGV[3] }, true)
return { 1, 0 }
