-- Returns the next state of a message whose lock ends, at the time `at`, without a final settlement: `dead` if it has
-- reached the delivery limit, otherwise `deferred`, `expired` or `ready`. With `counted`, the delivery counts as
-- failed. The delivery count of a dead letter never changes.
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
