-- Whether something is due in the partition that nobody has done yet. Three lower bounds tell it, nearly always without another
-- command.
local function has_overdue(p)
  return p.epoch or p.next_lock <= p.logical or p.next_due <= p.now or p.head <= p.now
end
