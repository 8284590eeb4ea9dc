-- Reads the first of these messages: all that fit into `room` bytes, changed properties included, but at least one.
-- Returns their number, their entries (and perhaps those of some more), and their records.
-- @use count_records_that_fit read_entries read_records record_of
local function read_messages(p, names, room)
  local entries, numbers = read_entries(p, names, room), {}
  for i = 1, #entries do
    numbers[i] = record_of(names[i], entries[i])
  end
  local fit = #numbers > 0 and count_records_that_fit(p, numbers, room, entries) or 0
  return fit, entries, fit > 0 and read_records(p.keys, { unpack(numbers, 1, fit) }) or {}
end
