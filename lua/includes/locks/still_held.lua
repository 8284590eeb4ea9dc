-- Returns the messages of a group that its token still locks: their names, numbers, entries and places in the call.
-- Adds the other messages of the group to `lost`. A lease that has ended holds nothing, whether or not it was deleted.
--
-- A message that was renewed alone has a lease of its own too, under the token and its name, and its entry says so. It
-- is locked until the later of the two leases ends. `alone` has the keys of such leases by the names of the messages.
--
-- A message that is named twice counts as lost the second time. To detect this, all groups of a call share the table
-- `seen`, which is empty at first. As long as the numbers rise, no message can have been named before, so the names
-- need not be compared. In `seen`, groups of one token also share their lease, so that release_from_lease counts for
-- all of them. The first of these groups has the fields of the lease. In a call of several transactions, `p.settled`
-- has the messages that earlier transactions have settled, and `p.released` has the leases that they have changed.
-- @use read_many
-- @use lease_end inside
local function still_held(p, group, seen, lost)
  local token, members, columns, plain = group.token, group.members, group.columns, group.plain
  local mine, lease = { token = token, numbers = {}, at = {} }, seen[token]
  lease = lease or p.released and p.released[token]
  if not lease then
    lease = mine
    local till, left, runs = string.match(redis.call('HGET', p.leases, token) or '0 0 ', '^(%d+) (%d+) (.*)$')
    mine.till, mine.left, mine.runs = till, left + 0, runs
    mine.session = string.byte(runs) == 64 and string.sub(runs, 2) or nil
  end
  seen[token] = lease
  mine.lease, mine.session = lease, lease.session
  local found, n, same, last, top, all = read_many('HMGET', p.entries, members), 0, false, nil, seen.top or 0, seen.all
  local settled, live, own = p.settled, tonumber(lease.till) > p.logical, false
  local names, entries, numbers, at = members, found, mine.numbers, mine.at -- most often all messages are held
  for i = 1, #members do
    local member, text = members[i], found[i]
    if text ~= last then -- messages of one size that were given out together have equal entries
      last, same = text, text and string.sub(text, 1, 11) == token
      own = same and string.byte(text, 12) >= 96
    end
    local fresh = same and (live or own and lease_end(p, token .. member) > p.logical)
    if fresh then
      local number = plain and member + 0 or tonumber(member)
      if all or not number or number <= top then
        if not all then
          all = {}
          for _, list in ipairs(seen) do
            for j = 1, #list do
              all[list[j]] = true
            end
          end
          for j = 1, n do
            all[names[j]] = true
          end
        end
        fresh = not all[member]
        all[member] = true
      else
        top = number
      end
      numbers[n + 1] = number
    end
    if fresh and not (settled and settled[member]) then
      n = n + 1
      if names ~= members then
        names[n], entries[n] = member, text
      end
      if columns > 1 then
        at[n] = group.at + (i - 1) * columns
      end
      if own then
        mine.alone = mine.alone or {}
        mine.alone[member] = token .. member
      end
    else
      if names == members then
        names, entries = { unpack(members, 1, n) }, { unpack(found, 1, n) }
      end
      lost[#lost + 1] = member
    end
  end
  numbers[n + 1] = nil
  mine.names, mine.entries, seen.top, seen.all = names, entries, top, all
  seen[#seen + 1] = names
  return mine
end
