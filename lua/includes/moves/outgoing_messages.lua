-- Reads the first of these messages as a mover gets them: all that fit into `room` bytes, at least one. Returns their
-- number, their entries, their states as one text with a letter for each message (a active, x transfer), their records,
-- and what delivery_extras adds for some of them.
-- @use delivery_extras read_messages
local function outgoing_messages(p, names, room)
  local fit, entries, records = read_messages(p, names, room)
  local states, extras = {}, {}
  for i = 1, fit do
    states[i] = entries[i] and string.byte(entries[i], 14) == 120 and 'x' or 'a'
    if entries[i] then
      delivery_extras(extras, i, entries[i])
    end
  end
  return fit, entries, table.concat(states), records, extras
end
