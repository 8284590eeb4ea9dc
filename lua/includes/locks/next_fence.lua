-- Returns the fence of a new lock. It is higher than the fences of all earlier locks on messages and sessions in the
-- partition. A resource outside of the partition can refuse a holder whose fence is lower than one that it has seen.
local function next_fence(p)
  p.granted = p.granted + 1
  p.changed.granted = p.granted
  return p.granted
end
