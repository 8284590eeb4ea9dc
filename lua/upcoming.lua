#!lua flags=no-writes
-- Tells of partitions in one slot when something will be due in each, at the earliest. A bound, which costs a short read or two a
-- partition: nothing is looked for, and nothing is done. Where nothing is due, what was announced says so.
--
-- KEYS[1...] states     the key `state` of each partition
-- ARGV[1]    now        for partitions with a test clock; or nothing
--
-- Result: for each partition in how many ms something is due at the earliest, 0 if it is due now; nothing if nothing is, or if it is
--   not here, is a topic's, or has a test clock where the caller has none
-- Refusals: BADCALL
-- @use never refuse server_time whole_number
local told = ARGV[1] ~= '' and whole_number(ARGV[1], 0, NEVER - 1)
if #ARGV ~= 1 or #KEYS > 1000 or told == nil then
  return refuse('BADCALL', 'partitions')
end
local time, reply = tonumber(server_time()), {}
for i = 1, #KEYS do
  local announced = redis.call('HGET', KEYS[i], 'announced')
  reply[i] = ''
  if announced and tonumber(announced) < NEVER then
    local layout, next_due, head, next_lock, offset, clock, status =
      unpack(redis.call('HMGET', KEYS[i], 'layout', 'next_due', 'head', 'next_lock', 'offset', 'clock', 'status'))
    local now = clock == 'test' and told or clock == 'server' and time
    if layout == '1' and now and status ~= 'Deleting' then
      local first = math.min(tonumber(next_due), tonumber(head))
      if tonumber(next_lock) < NEVER then
        first = math.min(first, tonumber(next_lock) - tonumber(offset))
      end
      if first < NEVER then
        reply[i] = string.format('%.0f', math.max(0, first - now))
      end
    end
  end
end
return reply
