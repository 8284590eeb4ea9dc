-- Adds a message to those that the events of a pass have moved, and returns its item. `was` is the letter of its event.
-- @use side_of
local function note_moved(o, member, was, e)
  local side, number = side_of(member)
  local m = { member = member, name = member, was = was, e = e, side = side, number = number }
  o.moved[#o.moved + 1], o.by[member] = m, m
  return m
end
