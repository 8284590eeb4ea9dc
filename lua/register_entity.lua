#!lua
-- Takes an entity into the registry under a name that is free, and gives it an id that no other entity has had or will have.
-- After a change of the server process the ids go on a good way further up: a failover may have lost the last ones that were
-- given.
--
-- KEYS[1] namespace    in the order of register_namespace.lua
-- KEYS[2] entities
-- KEYS[3] names
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] partitions   of the namespace, as the caller knows it
-- ARGV[3] name         in small letters
-- ARGV[4] incarnation  drawn by the caller; it tells a repetition from another creation, and is the record's first stamp
-- ARGV[5] description  of the entity
--
-- Result: the record
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS, EXISTS (another entity has the name), BADCALL
-- @use base36
-- @use refuse
-- @use registered
-- @use registry
-- @use server_time
-- @use token_of
local LEAP = 46656
local incarnation = token_of(ARGV[4])
if not incarnation or ARGV[3] == '' or ARGV[5] == '' then
  return refuse('BADCALL', 'entity')
end
local n, refusal = registry(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[3])
if there then
  local entity, foreign = registered(there)
  if not entity then
    return foreign
  end
  if entity.incarnation ~= incarnation then
    return refuse('EXISTS', ARGV[3])
  end
  return there
end

local id, run_id = n.last_id + 1, n.run_id
if ARGV[1] ~= '?' then
  if run_id ~= '?' and run_id ~= ARGV[1] then
    id = n.last_id + LEAP
  end
  run_id = ARGV[1]
end
local now = server_time()
local record = table.concat({ '1', '1', base36(id), incarnation, incarnation, now, now, ARGV[5] }, ' ')
redis.call('HSET', KEYS[1], 'last_id', string.format('%.0f', id), 'run_id', run_id)
redis.call('HSET', KEYS[2], ARGV[3], record)
redis.call('ZADD', KEYS[3], 0, ARGV[3])
return record
