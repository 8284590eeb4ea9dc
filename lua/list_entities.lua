#!lua flags=no-writes
-- Reads records of the queues and topics of a bucket in the order of their names, starting after a given name. Records
-- that cannot be read are also returned.
--
-- KEYS[1-10] bucket   in the order of begin_bucket.lua
-- ARGV[1] slots       the namespace's number of slots, as the caller knows it
-- ARGV[2] after       a name in lower case, which need not exist, or nothing for the first page
-- ARGV[3] limit       the largest number of records to return
--
-- Result: nothing if there is no bucket; otherwise for each entity its name in lower case and its record, which is
--   empty if there is none
-- Refusals: LAYOUT, SLOTS, BADCALL
-- Facts: repeatable
-- @use find_bucket refuse whole_number
local limit = whole_number(ARGV[3], 1, 1000)
if not limit then
  return refuse('BADCALL', 'limit')
end
local n, refusal = find_bucket(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local names = redis.call('ZRANGEBYLEX', KEYS[3], ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, limit)
if #names == 0 then
  return {}
end
local records, reply = redis.call('HMGET', KEYS[2], unpack(names)), {}
for i = 1, #names do
  reply[2 * i - 1], reply[2 * i] = names[i], records[i] or ''
end
return reply
