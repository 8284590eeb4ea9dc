-- Moves a message to the dead-letter queue of its partition, or to another `side` of dead letters. There it gets a new
-- number. A reason that is no letter says how often its holder ended at last: then it is at the delivery limit too.
-- @use add_pair entry_text mark_dead sides
local function bury(p, member, e, reason, side)
  side = side or SIDES.d
  p.dead_seq = p.dead_seq + 1
  p.marked = true
  local name = side.prefix .. string.format('%.0f', p.dead_seq)
  mark_dead(e, member, reason)
  if p.noted then
    local at_limit = reason == 'M' or string.byte(reason) < 65
    p.noted[#p.noted + 1] = (at_limit and 'm' or reason == 'T' and 't' or 'd') .. member
  end
  p.taken[#p.taken + 1] = member
  p.forgotten[#p.forgotten + 1] = member
  add_pair(p.placed, side.ready + p.dead_seq, name)
  add_pair(p.entered, name, entry_text(e))
end
