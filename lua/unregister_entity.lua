#!lua flags=allow-oom
-- Takes an entity out of the registry, if its record is the one that the caller has seen. One that is gone already may go
-- again.
--
-- KEYS[1] namespace    in the order of register_namespace.lua
-- KEYS[2] entities
-- KEYS[3] names
-- ARGV[1] partitions   of the namespace, as the caller knows it
-- ARGV[2] name         in small letters
-- ARGV[3] incarnation  of the entity
-- ARGV[4] expected     the stamp of the record that the caller has seen
--
-- Result: 1, or 0 if this incarnation was gone
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS, CHANGED (its version; somebody else was first), BADCALL
-- @use refuse
-- @use registered
-- @use registry
-- @use token_of
if not token_of(ARGV[3]) or not token_of(ARGV[4]) then
  return refuse('BADCALL', 'entity')
end
local n, refusal = registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[2])
if not there then
  return 0
end
local entity, foreign = registered(there)
if not entity then
  return foreign
end
if entity.incarnation ~= ARGV[3] then
  return 0
end
if string.sub(entity.stamps, 1, #ARGV[4]) ~= ARGV[4] then
  return refuse('CHANGED', entity.version)
end
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
return 1
