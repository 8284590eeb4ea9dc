#!lua flags=allow-oom
-- Takes an entity out of the registry, if its record is the one that the caller has seen. One that is gone already may go
-- again. The rules of a subscription go first, some with each call.
--
-- KEYS[1-7] registry   in the order of register_namespace.lua
-- ARGV[1] partitions   of the namespace, as the caller knows it
-- ARGV[2] name         in small letters
-- ARGV[3] incarnation  of the entity
-- ARGV[4] expected     the stamp of the record that the caller has seen
-- ARGV[5] share        how many rules go with one call
--
-- Result: { 1, or 0 if this incarnation was gone; 1 if it is still there, for it had more rules }
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS, CHANGED (its version; somebody else was first), BADCALL (also for a topic or a
--   subscription of which nobody has said that it is being deleted)
-- @use open_registry parse_entity parse_token refuse whole_number
local share = whole_number(ARGV[5], 1, 1000)
if not parse_token(ARGV[3]) or not parse_token(ARGV[4]) or not share then
  return refuse('BADCALL', 'entity')
end
local n, refusal = open_registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[2])
if not there then
  return { 0, 0 }
end
local entity, foreign = parse_entity(there)
if not entity then
  return foreign
end
if entity.incarnation ~= ARGV[3] then
  return { 0, 0 }
end
if string.sub(entity.stamps, 1, #ARGV[4]) ~= ARGV[4] then
  return refuse('CHANGED', entity.version)
end
if redis.call('HEXISTS', KEYS[7], ARGV[2]) == 1 then
  return refuse('BADCALL', 'state')
end
-- Behind a blank, in the order of bytes, stands the exclamation mark.
local rules = redis.call('ZRANGEBYLEX', KEYS[6], '(' .. ARGV[2] .. ' ', '(' .. ARGV[2] .. '!', 'LIMIT', 0, share)
if #rules > 0 then
  redis.call('HDEL', KEYS[5], unpack(rules))
  redis.call('ZREM', KEYS[6], unpack(rules))
end
if #rules == share then
  return { 1, 1 }
end
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('ZREM', KEYS[4], ARGV[2])
return { 1, 0 }
