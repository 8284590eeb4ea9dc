-- Extends a lease, or the lock on a session, for the full lock duration. What is renewed has begun: a plus before the
-- messages of the lease says so (see includes/time/reach.lua). All is written immediately, and `flush` may write the
-- lease again.
-- @use write_lease
local function renew_lease(p, token, lease)
  if not lease.session and string.byte(lease.runs) ~= 43 then
    lease.runs = '+' .. lease.runs
  end
  write_lease(p, token, p.logical + p.lock, lease.left, lease.runs)
  lease.till = string.format('%.0f', p.logical + p.lock)
end
