#!lua flags=no-writes
-- Returns for each of several partitions of one slot a lower bound of the time until something is due. It costs one or
-- two short reads a partition, because the script neither searches nor does the work that is due. If nothing will be
-- due, the script needs only the field `announced`. For a topic, it also reads which message is due first, because a
-- message that is due waits for the client that publishes it.
--
-- KEYS[1...] partitions  for each partition its key `state`, then its key `due`
-- ARGV[1]    now        the time for partitions with a test clock, or nothing
--
-- Result: for each partition the lower bound in ms, which is 0 if something is due now. It is an empty text if nothing
--   will be due, or if the partition is not here, or has a test clock and the caller gave no time
-- Refusals: BADCALL
-- Facts: repeatable
-- @use never parse_marks refuse server_time whole_number
local told = ARGV[1] ~= '' and whole_number(ARGV[1], 0, NEVER - 1)
if #ARGV ~= 1 or #KEYS > 1000 or #KEYS % 2 ~= 0 or told == nil then
  return refuse('BADCALL', 'partitions')
end
local time, reply = tonumber(server_time()), {}
for i = 1, #KEYS, 2 do
  local layout, marks = unpack(redis.call('HMGET', KEYS[i], 'layout', 'marks'))
  local m = layout == '2' and marks and parse_marks[marks]
  reply[#reply + 1] = ''
  if m and m.announced < NEVER then
    local text = redis.call('HGET', KEYS[i], 'settings')
    local w = { WORDS.match(text) }
    local clock = w[WORDS.clock]
    local now = clock == 'test' and told or clock == 'server' and time
    if now and w[WORDS.status] ~= 'Deleting' then
      local first = math.min(m.next_due, m.head)
      if m.next_lock < NEVER then
        first = math.min(first, m.next_lock - m.offset)
      end
      if w[WORDS.topic] == '1' then
        first = math.min(first, tonumber(redis.call('ZRANGE', KEYS[i + 1], 0, 0, 'WITHSCORES')[2] or NEVER))
      end
      if first < NEVER then
        reply[#reply] = string.format('%.0f', math.max(0, first - now))
      end
    end
  end
end
return reply
