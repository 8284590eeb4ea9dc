-- Returns the number of these messages, counted from the first, that fit into `room` bytes together; at least one. The
-- changed properties of a message count too. The function first assumes that each message is as large as the largest
-- that the partition has had. Only if messages of that size would not all fit, it takes the sizes from the `entries`,
-- and reads the sizes of the records that have no entry.
-- @use record_key
local function count_records_that_fit(p, numbers, room, entries)
  local n = #numbers
  if n * p.biggest <= room then
    return n
  end
  for i = 1, n do
    local text, size, at = entries and entries[i], nil, nil
    if text then
      size, at = string.match(text, '^(%d+);%d*;%d*;()', 34)
      room = room - size - (#text - at + 1)
    else
      room = room - redis.call('HSTRLEN', record_key(p.keys, numbers[i]), numbers[i])
    end
    if room < 0 then
      return math.max(1, i - 1)
    end
  end
  return n
end
