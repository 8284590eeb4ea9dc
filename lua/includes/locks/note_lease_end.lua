-- Puts the time of the next end of a lease forward to `till`, the end of a lease that is written, if it is sooner.
local function note_lease_end(p, till)
  if till < p.next_lock then
    p.next_lock, p.marked = till, true
  end
end
