-- Returns the next state of a message whose lock ends, at the time `at`, without a final settlement: `dead` because of
-- its failures, `deferred`, `expired` or `ready`. With `counted`, the delivery counts as failed; the count of a dead
-- letter never changes.
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
