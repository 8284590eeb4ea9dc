-- Does a bounded share of what is due in the partition, before the operation of the call. If that is not all, `more` is set: the
-- operation then sees a state that is complete up to the first event that is left.
-- @use overdue work_off
local function advance(p, share)
  if overdue(p) then
    work_off(p, share)
  end
end
