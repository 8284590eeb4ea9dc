-- What becomes of a message whose lock ends at a time, other than by settling it for good: `dead` by its failures, `deferred`,
-- `expired` or `ready`. With `counted` this was a delivery that failed; the count of a dead letter stays as it was.
local function state_after_lock(p, side, e, counted, at)
  if counted and side.prefix == '' then
    e.failures = e.failures + 1
    if e.failures >= p.deliveries then
      return 'dead'
    end
  end
  if e.home == 'f' then
    return 'deferred'
  end
  return tonumber(e.expires) <= at and 'expired' or 'ready'
end
