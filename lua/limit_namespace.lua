#!lua
-- Limits the number of entities of a namespace, and their largest size together. Entities that exist are kept, even if
-- they are more.
--
-- KEYS[1-7] registry      in the order of register_namespace.lua
-- ARGV[1] slots           the namespace's number of slots, as the caller knows it
-- ARGV[2] max_entities    the largest number of queues, topics and subscriptions, or nothing
-- ARGV[3] max_megabytes   the largest sum of the sizes of queues and topics in megabytes, or nothing
--
-- Result: the facts of the namespace, as in read_namespace.lua
-- Refusals: NAMESPACE, LAYOUT, SLOTS, BADCALL
-- Facts: repeatable
-- @use namespace_facts open_registry refuse whole_number
local names = { 'max_entities', 'max_megabytes' }
for i = 1, 2 do
  if ARGV[1 + i] ~= '' and not whole_number(ARGV[1 + i], 0, 999999999999) then
    return refuse('BADCALL', names[i])
  end
end
local n, refusal = open_registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
for i = 1, 2 do
  if ARGV[1 + i] == '' then
    redis.call('HDEL', KEYS[1], names[i])
  else
    redis.call('HSET', KEYS[1], names[i], ARGV[1 + i])
  end
end
return namespace_facts(KEYS)
