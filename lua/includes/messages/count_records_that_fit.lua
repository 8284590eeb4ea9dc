-- Returns the number of these records, counted from the first, that fit into `room` bytes together; at least one. It
-- reads the sizes of the records only if they might not all fit. It knows this from the size of the largest message
-- that the partition has had.
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
