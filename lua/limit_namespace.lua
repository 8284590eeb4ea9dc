#!lua
-- Limits the number of entities of a namespace, and their largest size together. Entities that exist are kept, even if
-- they are more. The caller then tells all buckets whether there are limits (begin_bucket.lua).
--
-- KEYS[1] namespace       as in register_namespace.lua
-- ARGV[1] slots           the namespace's number of slots, as the caller knows it
-- ARGV[2] max_entities    the largest number of queues, topics and subscriptions, or nothing
-- ARGV[3] max_megabytes   the largest sum of the sizes of queues and topics in megabytes, or nothing
--
-- Result: the facts of the namespace, as in read_namespace.lua
-- Refusals: NAMESPACE, LAYOUT, SLOTS, BADCALL
-- Facts: repeatable
-- @use namespace_facts refuse whole_number
local slots, names = whole_number(ARGV[1], 1, 1024), { 'max_entities', 'max_megabytes' }
if not slots then
  return refuse('BADCALL', 'slots')
end
for i = 1, 2 do
  if ARGV[1 + i] ~= '' and not whole_number(ARGV[1 + i], 0, 999999999999) then
    return refuse('BADCALL', names[i])
  end
end
local there = namespace_facts(KEYS, slots)
if not there then
  return refuse('NAMESPACE', 'missing')
end
if there.err then
  return there
end
for i = 1, 2 do
  if ARGV[1 + i] == '' then
    redis.call('HDEL', KEYS[1], names[i])
  else
    redis.call('HSET', KEYS[1], names[i], ARGV[1 + i])
  end
end
return namespace_facts(KEYS)
