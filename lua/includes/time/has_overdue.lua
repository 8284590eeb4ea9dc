-- Returns whether the partition has due work that no call has done yet. It compares three lower bounds that `begin` has
-- read, so it needs no further command.
local function has_overdue(p)
  return p.epoch or p.next_lock <= p.logical or p.next_due <= p.now or p.head <= p.now
end
