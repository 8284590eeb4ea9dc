-- Moves a message to the dead-letter queue of its partition. There it gets a new number.
-- @use entry_text mark_dead sides
local function bury(p, member, e, reason)
  p.dead_seq = p.dead_seq + 1
  p.changed.dead_seq = p.dead_seq
  local number = string.format('%.0f', p.dead_seq)
  mark_dead(e, member, reason)
  p.taken[#p.taken + 1] = member
  p.forgotten[#p.forgotten + 1] = member
  p.placed[#p.placed + 1] = SIDES.d.ready + p.dead_seq
  p.placed[#p.placed + 1] = 'd' .. number
  p.entered[#p.entered + 1] = 'd' .. number
  p.entered[#p.entered + 1] = entry_text('            ', e)
end
