-- Releases what the leases that have ended still hold, at most `share` messages. A long lease may be worked off in several
-- calls.
-- @use entry
-- @use gather
-- @use release
local function lapse(p, share)
  local ended = redis.call('ZRANGE', p.locks, '-inf', p.logical, 'BYSCORE', 'LIMIT', 0, share)
  for i = 1, #ended do
    if share <= 0 then
      break
    end
    local token = ended[i]
    local till, left, runs = string.match(redis.call('HGET', p.leases, token), '^(%d+) (%d+) (.*)$')
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
    for j = 1, #members do
      if found[j] and string.sub(found[j], 1, 12) == token then
        release(p, members[j], entry(found[j]), true, 0)
        left = left - 1
      end
    end
    if rest and tonumber(left) > 0 then
      redis.call('HSET', p.leases, token, string.format('%s %d %s', till, left, table.concat(rest, ',')))
    else
      redis.call('HDEL', p.leases, token)
      redis.call('ZREM', p.locks, token)
    end
  end
  return share
end
