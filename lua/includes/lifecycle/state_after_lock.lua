-- Returns the next state of a message whose lock ends, at the time `at`, without a final settlement: `dead` if it has
-- reached the delivery limit, otherwise `deferred`, `expired` or `ready`. With `counted`, the delivery counts as
-- failed. The delivery count of a dead letter never changes. A delivery that was released unread leaves the mark of an
-- earlier interruption, so the next delivery reports it.
local function state_after_lock(p, side, e, counted, at, interrupted)
  local deferred = e.home == 'f' or e.home == 'g'
  local marked = interrupted or not counted and (e.home == 'i' or e.home == 'g')
  e.home = deferred and (marked and 'g' or 'f') or (marked and 'i' or 'a')
  if counted and side.prefix == '' then
    e.failures = e.failures + 1
    if e.failures >= p.deliveries then
      return 'dead'
    end
  end
  if deferred then
    return 'deferred'
  end
  return tonumber(e.expires) <= at and 'expired' or 'ready'
end
