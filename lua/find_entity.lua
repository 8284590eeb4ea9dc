#!lua flags=no-writes
-- Finds an entity by its id.
--
-- KEYS[1-10] bucket  in the order of begin_bucket.lua
-- ARGV[1] slots      the namespace's number of slots, as the caller knows it
-- ARGV[2] id         of the entity
--
-- Result: nothing if there is no such entity; otherwise { the name or path of the entity, its record, which is empty if
--   it is missing }
-- Refusals: LAYOUT, SLOTS
-- Facts: repeatable
-- @use find_bucket
local n, refusal = find_bucket(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local path = redis.call('HGET', KEYS[8], ARGV[2])
if not path then
  return nil
end
return { path, redis.call('HGET', KEYS[2], path) or '' }
