#!lua flags=no-writes
-- Returns for each of several partitions of one slot whether messages in it wait to be moved, or a batch is
-- outstanding. The partition has announced this. It costs one short read a partition.
--
-- KEYS[1...] states     the key `state` of each partition
--
-- Result: for each partition 1 if it waits for a client that moves messages, otherwise 0
-- Refusals: BADCALL
-- Facts: repeatable
-- @use refuse
if #ARGV ~= 0 or #KEYS > 1000 then
  return refuse('BADCALL', 'partitions')
end
local reply = {}
for i = 1, #KEYS do
  local layout, text, calling = unpack(redis.call('HMGET', KEYS[i], 'layout', 'settings', 'calling'))
  local w = layout == '2' and calling == '1' and { WORDS.match(text) }
  reply[i] = w and w[WORDS.status] ~= 'Deleting' and 1 or 0
end
return reply
