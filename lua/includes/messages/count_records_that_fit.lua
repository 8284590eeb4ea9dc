-- How many of these records, from the first on, weigh no more than `room` together; at least one. Their sizes are asked for
-- only where the largest message that ever came here says that they might be too much.
-- @use record_key
local function count_records_that_fit(p, numbers, room)
  local n = #numbers
  if n * p.biggest <= room then
    return n
  end
  for i = 1, n do
    room = room - redis.call('HSTRLEN', record_key(p.keys, numbers[i]), numbers[i])
    if room < 0 then
      return math.max(1, i - 1)
    end
  end
  return n
end
