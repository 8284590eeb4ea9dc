#!lua flags=no-writes
-- Returns for each of several partitions of one slot the time since its last use. It costs one short read a partition,
-- and two for a topic: a use of a subscription is also a use of its topic.
--
-- KEYS[1...] states     for each partition its key `state`, then its key `store`
-- ARGV[1]    now        the time for partitions with a test clock, or nothing
--
-- Result: for each partition the time in ms; it is an empty text if the partition is not here, is being deleted, or has
--   a test clock and the caller gave no time
-- Refusals: BADCALL
-- Facts: repeatable
-- @use never refuse server_time whole_number
local told = ARGV[1] ~= '' and whole_number(ARGV[1], 0, NEVER - 1)
if #ARGV ~= 1 or #KEYS > 1000 or #KEYS % 2 ~= 0 or told == nil then
  return refuse('BADCALL', 'partitions')
end
local time, reply = tonumber(server_time()), {}
for i = 1, #KEYS, 2 do
  local layout, text, used = unpack(redis.call('HMGET', KEYS[i], 'layout', 'settings', 'used'))
  local w = layout == '2' and { WORDS.match(text) } or {}
  local clock, topic = w[WORDS.clock], w[WORDS.topic]
  local now = clock == 'test' and told or clock == 'server' and time
  local quiet = ''
  if now and w[WORDS.status] ~= 'Deleting' then
    local last = tonumber(used)
    if topic == '1' then
      last = math.max(last, tonumber(redis.call('HGET', KEYS[i + 1], 'used') or 0))
    end
    quiet = string.format('%.0f', math.max(0, now - last))
  end
  reply[#reply + 1] = quiet
end
return reply
