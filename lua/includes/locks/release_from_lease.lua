-- Takes settled messages off their lease, and ends the leases of their own. The next `flush` writes the lease, or
-- deletes it if it holds no more messages. A lease that has ended does not change: its lapse is due work. A lease of a
-- lock on a session does not change either. The holder of the session may lack messages because it has too many locked
-- ones, so the session is marked to be looked at again.
local function release_from_lease(p, mine, count)
  if count == 0 then
    return
  end
  if mine.session then
    p.touched[mine.session] = p.touched[mine.session] or true
    return
  end
  local lease = mine.lease
  p.released = p.released or {}
  if tonumber(lease.till) > p.logical then
    lease.left = lease.left - count
    p.released[mine.token] = lease
  end
  for _, key in pairs(mine.alone or {}) do
    p.released[key] = { left = 0 }
  end
end
