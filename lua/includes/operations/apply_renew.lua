-- Renews the locks of held messages for the full lock duration. `held` is the result of held_messages. If a group names
-- all messages that its lease still holds, that lease is extended, as is the lock on a session. If not, the named
-- messages move to a lease under `token`. Returns the names of these messages.
-- @use name_runs release_from_lease write_lease
local function apply_renew(p, token, held)
  local till, moved = p.logical + p.lock, {}
  for g = 1, #held do
    local mine = held[g]
    local lease = mine.lease
    if #mine.names > 0 and (mine.session or #mine.names == lease.left) then
      write_lease(p, mine.token, till, lease.left, lease.runs)
      lease.till = string.format('%.0f', till) -- `flush` may write the lease again
    else
      for i = 1, #mine.names do
        moved[#moved + 1] = mine.names[i]
        p.entered[#p.entered + 1] = mine.names[i]
        p.entered[#p.entered + 1] = token .. string.sub(mine.entries[i], 13)
      end
      release_from_lease(p, mine, #mine.names)
    end
  end
  if #moved > 0 then
    write_lease(p, token, till, #moved, name_runs(moved))
  end
  return moved
end
