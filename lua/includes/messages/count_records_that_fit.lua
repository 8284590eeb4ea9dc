-- Returns the number of these records, counted from the first, that fit into `room` bytes together; at least one. With
-- `entries`, the entry of each message counts too, because it contains the changed properties. The function first
-- assumes that each record is as large as the largest message that the partition has had. It reads the sizes of the
-- records only if records of that size would not all fit.
-- @use record_key
local function count_records_that_fit(p, numbers, room, entries)
  local n, beside = #numbers, 0
  for i = 1, entries and n or 0 do
    beside = beside + #(entries[i] or '')
  end
  if n * p.biggest + beside <= room then
    return n
  end
  for i = 1, n do
    room = room - redis.call('HSTRLEN', record_key(p.keys, numbers[i]), numbers[i])
      - (entries and #(entries[i] or '') or 0)
    if room < 0 then
      return math.max(1, i - 1)
    end
  end
  return n
end
