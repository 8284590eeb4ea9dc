-- Returns the number of messages, counted from the first, that fit into `room` bytes together; at least one. Their
-- entries contain their sizes, so no record is read.
local function count_that_fit(entries, room)
  for i = 1, #entries do
    room = room - tonumber(string.match(entries[i], '^%d+', 34))
    if room < 0 then
      return math.max(1, i - 1)
    end
  end
  return #entries
end
