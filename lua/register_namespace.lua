#!lua
-- Creates a namespace if it does not exist, and returns its facts.
--
-- KEYS[1] namespace      hash: layout, slots, created, last_id, run_id; `megabytes`, the sum of the sizes of
--   queues and topics, and for each of them `size:` and its name; the limits max_entities and max_megabytes, if they
--   are set
-- KEYS[2] entities       hash: from an entity's name (a subscription: its path) in lower case to its record
-- KEYS[3] names          zset: the names of queues and topics in order, all with score 0
-- KEYS[4] subscriptions  zset: the paths of subscriptions in order, all with score 0
-- KEYS[5] rules          hash: from a rule's place (its subscription's path, a blank, its name) in lower case to the
--   rule
-- KEYS[6] places         zset: the places of rules in order, all with score 0
-- KEYS[7] tallies        hash: from the name of a topic or the path of a subscription to its counts, while it is not
--   being deleted
-- ARGV[1] run_id      of the server process, put in by the transport
-- ARGV[2] slots       the number of slots of a new namespace
-- ARGV[3] exact       1 if a namespace that already exists must also have this number of slots
--
-- Result: the facts of the namespace, as in read_namespace.lua
-- Refusals: LAYOUT (another release wrote the data), SLOTS (the namespace has another number of slots),
--   BADCALL
-- Facts: repeatable
-- @use namespace_facts refuse server_time whole_number
local slots = whole_number(ARGV[2], 1, 1024)
if not slots or ARGV[3] ~= '0' and ARGV[3] ~= '1' then
  return refuse('BADCALL', 'slots')
end
local there = namespace_facts(KEYS, ARGV[3] == '1' and slots)
if there then
  return there
end
local now = server_time()
local text = string.format('%.0f', slots)
redis.call('HSET', KEYS[1], 'layout', '2', 'slots', text, 'created', now, 'last_id', '0', 'run_id', ARGV[1])
return namespace_facts(KEYS)
