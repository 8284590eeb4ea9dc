-- Takes settled messages off their lease. The next `flush` writes the lease, or deletes it if it holds no more
-- messages. A lease of a lock on a session does not change. The holder of the session may be waiting because it has too
-- many locked messages, so the session is marked to be looked at again.
local function release_from_lease(p, mine, count)
  if count == 0 then
    return
  end
  if mine.session then
    p.touched[mine.session] = p.touched[mine.session] or true
    return
  end
  local lease = mine.lease
  lease.left = lease.left - count
  p.released = p.released or {}
  p.released[mine.token] = lease
end
