-- Returns the messages of a group that its lease still holds: their names, numbers, entries and places in the call.
-- Adds the other messages of the group to `lost`. A lease that has ended holds nothing, whether or not it was deleted.
-- A message that is named twice counts as lost the second time. To detect this, all groups of a call share the table
-- `seen`, which is empty at first. As long as the numbers rise, no message can have been named before, so the names
-- need not be compared. In `seen`, groups of one token also share their lease, so that release_from_lease counts for
-- all of them. The first of these groups has the fields of the lease. In a call of several transactions, `p.settled`
-- has the messages that earlier transactions have settled, and `p.released` has the leases that they have changed.
-- @use read_many
local function still_held(p, group, seen, lost)
  local token, members, columns = group.token, group.members, group.columns
  local names, numbers, entries, at = {}, {}, {}, {}
  local mine, lease = { names = names, numbers = numbers, entries = entries, at = at, token = token }, seen[token]
  lease = lease or p.released and p.released[token]
  if not lease then
    lease = mine
    local till, left, runs = string.match(redis.call('HGET', p.leases, token) or '0 0 ', '^(%d+) (%d+) (.*)$')
    mine.till, mine.left, mine.runs, mine.session = till, tonumber(left), runs, string.match(runs, '^@(.*)$')
  end
  seen[token] = lease
  mine.lease, mine.session = lease, lease.session
  if tonumber(lease.till) <= p.logical then
    for i = 1, #members do
      lost[#lost + 1] = members[i]
    end
    return mine
  end
  local found, n, same, last, top = read_many('HMGET', p.entries, members), 0, false, nil, seen.top or 0
  local settled = p.settled
  for i = 1, #members do
    local member, text = members[i], found[i]
    if text ~= last then -- messages of one size that were given out together have equal entries
      last, same = text, text and string.sub(text, 1, 12) == token
    end
    local fresh = same
    if same then
      local number = tonumber(member)
      if seen.all or not number or number <= top then
        if not seen.all then
          seen.all = {}
          for _, list in ipairs(seen) do
            for j = 1, #list do
              seen.all[list[j]] = true
            end
          end
          for j = 1, n do
            seen.all[names[j]] = true
          end
        end
        fresh = not seen.all[member]
        seen.all[member] = true
      else
        top = number
      end
      numbers[n + 1] = number
    end
    if fresh and not (settled and settled[member]) then
      n = n + 1
      names[n], entries[n], at[n] = member, text, group.at + (i - 1) * columns
    else
      lost[#lost + 1] = member
    end
  end
  numbers[n + 1] = nil
  seen.top = top
  seen[#seen + 1] = names
  return mine
end
