-- Reads the first of these messages as a mover gets them: all that fit into `room` bytes, at least one. Returns their
-- number, their entries, their states as one text with a letter for each message (a active, x transfer), their records,
-- and what delivery_extras adds for some of them.
-- @use count_records_that_fit delivery_extras read_entries read_records record_of
local function outgoing_messages(p, names, room)
  local entries, numbers, states, extras = read_entries(p, names, room), {}, {}, {}
  for i = 1, #entries do
    numbers[i] = record_of(names[i], entries[i])
  end
  local fit = #entries > 0 and count_records_that_fit(p, numbers, room, entries) or 0
  local records = fit > 0 and read_records(p.keys, { unpack(numbers, 1, fit) }) or {}
  for i = 1, fit do
    states[i] = entries[i] and string.byte(entries[i], 14) == 120 and 'x' or 'a'
    if entries[i] then
      delivery_extras(extras, i, entries[i])
    end
  end
  return fit, entries, table.concat(states), records, extras
end
