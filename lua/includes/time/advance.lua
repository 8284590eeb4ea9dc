-- Does a bounded share of what is due in the partition, before the operation of the call. If that is not all, `more` is set: the
-- operation then sees a state that is complete up to the first event that is left.
-- @use apply_due has_overdue
local function advance(p, share)
  if has_overdue(p) then
    apply_due(p, share)
  end
end
