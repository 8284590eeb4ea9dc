-- Renews the locks of held messages for the full lock duration. `held` is the result of held_messages. If a group names
-- all messages that its lease still holds, that lease is extended, as is the lock on a session. If not, each of the
-- named messages gets a lease of its own, or keeps it, under the token and its name, and the lease of the group stays
-- as it is. Returns the names of these messages. All is written immediately, so that a later transaction of the call
-- sees it.
-- @use add_pair renew_lease
-- @use note_lease_end write_many inside
local function apply_renew(p, held)
  local till, apart = p.logical + p.lock, {}
  local marks, leases, ends = {}, {}, {}
  for g = 1, #held do
    local mine = held[g]
    local lease, alone, names = mine.lease, mine.alone, mine.names
    local whole = #names > 0 and (mine.session or #names == lease.left and tonumber(lease.till) > p.logical)
    if whole then
      renew_lease(p, mine.token, lease)
    end
    for i = 1, (not whole or alone) and #names or 0 do
      local name, text = names[i], mine.entries[i]
      local key = alone and alone[name]
      if not whole then
        apart[#apart + 1] = name
      end
      if not whole and not key then
        key = mine.token .. name
        add_pair(marks, name, mine.token .. string.char(string.byte(text, 12) + 64) .. string.sub(text, 13))
      end
      if key then
        add_pair(leases, key, string.format('%.0f 1 ', till) .. name)
        add_pair(ends, till, key)
      end
    end
  end
  if #leases > 0 then
    write_many('HSET', p.leases, leases)
    write_many('ZADD', p.locks, ends)
    note_lease_end(p, till)
  end
  if #marks > 0 then
    write_many('HSET', p.entries, marks)
  end
  return apart
end
