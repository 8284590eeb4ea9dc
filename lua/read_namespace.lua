#!lua flags=no-writes
-- Reads the facts of a namespace. Opening a client is this call, so that it works
-- on a server at its memory limit, too.
--
-- KEYS[1] namespace    as in register_namespace.lua
-- ARGV[1] slots        the number of slots that the namespace must have, or nothing
--
-- Result: nothing if the namespace does not exist, or { the number of slots, the time in ms when the namespace was
--   created, the largest number of entities, the largest sum of the sizes of queues and topics in megabytes }; a limit
--   is nothing if there is none
-- Refusals: LAYOUT, SLOTS (the namespace has another number of slots), BADCALL
-- Facts: repeatable, preloaded
-- @use namespace_facts refuse whole_number
local wanted = ARGV[1] ~= '' and whole_number(ARGV[1], 1, 1024)
if wanted == nil then
  return refuse('BADCALL', 'slots')
end
return namespace_facts(KEYS, wanted)
