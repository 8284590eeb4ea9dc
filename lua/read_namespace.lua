#!lua flags=no-writes
-- Reads the number of partitions of a namespace and its creation time. Opening a client is this call, so that it works
-- on a server at its memory limit, too.
--
-- KEYS[1-7] registry   in the order of register_namespace.lua
-- ARGV[1] partitions   the number of partitions that the namespace must have, or nothing
--
-- Result: nothing if the namespace does not exist, or { the number of partitions, the time in ms when the namespace was
--   created }
-- Refusals: LAYOUT, PARTITIONS (the namespace has another number of partitions), BADCALL
-- @use namespace_facts refuse whole_number
local wanted = ARGV[1] ~= '' and whole_number(ARGV[1], 1, 1024)
if wanted == nil then
  return refuse('BADCALL', 'partitions')
end
return namespace_facts(KEYS[1], wanted)
