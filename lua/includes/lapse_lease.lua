-- Releases what a lease that has ended still holds, at most `share` messages; what is left of it stays for another call.
-- @use entry
-- @use gather
-- @use release
local function lapse_lease(p, token, till, left, runs, share)
  local members, rest = {}, nil
  for prefix, first, last in string.gmatch(runs, '(d?)(%d+)%-?(%d*)') do
    first = tonumber(first)
    last = tonumber(last) or first
    if not rest and share >= 1 then
      local stop = math.min(last, first + share - 1)
      for number = first, stop do
        members[#members + 1] = prefix .. string.format('%.0f', number)
      end
      share = share - (stop - first + 1)
      first = stop + 1
    end
    if first <= last then
      rest = rest or {}
      rest[#rest + 1] = string.format('%s%.0f-%.0f', prefix, first, last)
    end
  end
  local found = gather('HMGET', p.entries, members)
  for i = 1, #members do
    if found[i] and string.sub(found[i], 1, 12) == token then
      release(p, members[i], entry(found[i]), true, 0)
      left = left - 1
    end
  end
  if rest and tonumber(left) > 0 then
    redis.call('HSET', p.leases, token, string.format('%s %d %s', till, left, table.concat(rest, ',')))
  else
    redis.call('HDEL', p.leases, token)
    redis.call('ZREM', p.locks, token)
  end
  return share
end
