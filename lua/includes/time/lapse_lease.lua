-- Ends a lease at the time `at`, for at most as many messages as the pass has share left. Returns how much of the share
-- that used, and whether messages are left.
-- @use entry lapse_message lapse_session note_moved read_many
local function lapse_lease(p, o, token, at)
  local till, left, runs = string.match(redis.call('HGET', p.leases, token), '^(%d+) (%d+) (.*)$')
  if string.byte(runs) == 64 then -- @: on a session
    return lapse_session(p, o, token, string.sub(runs, 2), at)
  end
  local members, rest, spent = {}, nil, 0
  for prefix, first, last in string.gmatch(runs, '([dt]?)(%d+)%-?(%d*)') do
    first = tonumber(first)
    last = tonumber(last) or first
    if not rest and spent < o.share then
      local stop = math.min(last, first + o.share - spent - 1)
      for number = first, stop do
        members[#members + 1] = prefix .. string.format('%.0f', number)
      end
      spent, first = spent + stop - first + 1, stop + 1
    end
    if first <= last then
      rest = rest or {}
      rest[#rest + 1] = string.format('%s%.0f-%.0f', prefix, first, last)
    end
  end
  local found = read_many('HMGET', p.entries, members)
  for i = 1, #members do
    if found[i] and string.sub(found[i], 1, 12) == token then
      lapse_message(p, o, note_moved(o, members[i], 'L', entry(found[i])), at)
      left = left - 1
    end
  end
  local kept = rest and tonumber(left) > 0 and string.format('%s %d %s', till, left, table.concat(rest, ','))
  o.leases[#o.leases + 1] = { token = token, text = kept }
  return spent, kept
end
