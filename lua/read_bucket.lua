#!lua flags=no-writes
-- Reads how much a bucket of the registry contains.
--
-- KEYS[1-10] bucket  in the order of begin_bucket.lua
-- ARGV[1] slots      the namespace's number of slots, as the caller knows it
--
-- Result: nothing if there is no bucket; otherwise { the number of queues and topics, the number of subscriptions, the
--   sum of the sizes of queues and topics in megabytes }
-- Refusals: LAYOUT, SLOTS
-- Facts: repeatable
-- @use find_bucket
local n, refusal = find_bucket(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local megabytes = tonumber(redis.call('HGET', KEYS[1], 'megabytes') or 0)
return { redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]), megabytes }
