#!lua flags=no-writes
-- Reads the records of a bucket that have changed after a number, in the order of their last changes. After 0, these
-- are all records. It stops early if the next record would not fit into the reply.
--
-- KEYS[1-10] bucket  in the order of begin_bucket.lua
-- ARGV[1] run_id     of the server process, put in by the transport
-- ARGV[2] slots      the namespace's number of slots, as the caller knows it
-- ARGV[3] after      the number
-- ARGV[4] limit      the largest number of records
--
-- Result: nothing if there is no bucket; otherwise { the life of the bucket; the number of the last deletion that the
--   log has lost; the number up to which this reply has read; the last number of the bucket; 1 if there may be more;
--   for each entity its name or path, and its record: empty if it is missing, nothing if the entity is gone }. A bucket
--   that was begun anew has another life, and so has a bucket on another server process, which may have lost changes
-- Refusals: LAYOUT, SLOTS, BADCALL
-- Facts: repeatable
-- @use find_bucket refuse whole_number
local ROOM = 1048576
local after, limit = whole_number(ARGV[3], 0, 999999999999999), whole_number(ARGV[4], 1, 1000)
if not after or not limit then
  return refuse('BADCALL', 'changes')
end
local n, refusal = find_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local entries = redis.call('ZRANGEBYSCORE', KEYS[9], '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
local reply = { n.created .. ' ' .. ARGV[1], n.floor, after, n.last, #entries == 2 * limit and 1 or 0 }
local bytes, read, more = 0, after, nil
for i = 1, #entries, 2 do
  local path = entries[i]
  local record = redis.call('HGET', KEYS[2], path)
  if not record and (redis.call('ZSCORE', KEYS[3], path) or redis.call('ZSCORE', KEYS[4], path)) then
    record = ''
  end
  bytes = bytes + #path + (record and #record or 0)
  if i > 1 and bytes > ROOM then
    more = 1
    break
  end
  read = tonumber(entries[i + 1])
  reply[#reply + 1], reply[#reply + 2] = path, record or false
end
reply[3], reply[5] = read, more or reply[5]
return reply
