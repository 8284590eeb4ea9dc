-- Returns the number of these records, counted from the first, that fit into `room` bytes together; at least one. It
-- first assumes that each record is as large as the largest message that the partition has had. It reads the sizes of
-- the records only if records of that size would not all fit.
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
