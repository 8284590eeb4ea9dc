-- Does a bounded share of the due work of the partition, before the operation of the call. If due work is left, `more`
-- is set. The operation then sees the state before the first event that is left.
-- @use apply_due has_overdue
local function advance(p, share)
  if has_overdue(p) then
    apply_due(p, share)
  end
end
