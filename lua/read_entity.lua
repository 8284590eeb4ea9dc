#!lua flags=no-writes
-- Reads the record of an entity.
--
-- KEYS[1] namespace   in the order of register_namespace.lua
-- KEYS[2] entities
-- KEYS[3] names
-- ARGV[1] partitions  of the namespace, as the caller knows it
-- ARGV[2] name        in small letters
--
-- Result: the record, or nothing
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS
-- @use registry
local n, refusal = registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
return redis.call('HGET', KEYS[2], ARGV[2])
