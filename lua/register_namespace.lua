#!lua
-- Creates a namespace if it does not exist, and returns its facts.
--
-- KEYS[1] namespace   hash: layout, slots, created; the limits max_entities and max_megabytes, if they are set
-- ARGV[1] slots       the number of slots of a new namespace
-- ARGV[2] exact       1 if a namespace that already exists must also have this number of slots
--
-- Result: the facts of the namespace, as in read_namespace.lua
-- Refusals: LAYOUT (another release wrote the data), SLOTS (the namespace has another number of slots),
--   BADCALL
-- Facts: repeatable
-- @use namespace_facts refuse server_time whole_number
local slots = whole_number(ARGV[1], 1, 1024)
if not slots or ARGV[2] ~= '0' and ARGV[2] ~= '1' then
  return refuse('BADCALL', 'slots')
end
local there = namespace_facts(KEYS, ARGV[2] == '1' and slots)
if there then
  return there
end
redis.call('HSET', KEYS[1], 'layout', '2', 'slots', string.format('%.0f', slots), 'created', server_time())
return namespace_facts(KEYS)
