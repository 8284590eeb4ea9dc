-- Ends a lease at the time `at`, for at most as many messages as the pass has share left. Returns how much of the share
-- that used, and whether messages are left. A message that has two leases, one of which is its own (see still_held),
-- lapses with the one that ends later; if both end at the same time, with its own. A delivery counts if the holder may
-- have begun the message.
-- @use entry lapse_message lapse_session note_moved reach read_many serial_of
-- @use lease_end inside
local function lapse_lease(p, o, key, at)
  local till, left, runs = string.match(redis.call('HGET', p.leases, key), '^(%d+) (%d+) (.*)$')
  local token = string.sub(key, 1, 11)
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
  local found, alone = read_many('HMGET', p.entries, members), key ~= token
  local begun = not alone and string.byte(runs) ~= 43 and reach(p, o, token)
  if begun and serial_of(token) <= begun.begun then
    begun = nil
  end
  for i = 1, #members do
    if found[i] and string.sub(found[i], 1, 11) == token then
      local other = alone and token or string.byte(found[i], 12) >= 96 and token .. members[i]
      local later = other and lease_end(p, other) - till or -1
      if later < 0 or alone and later == 0 then
        local counted = other or not begun or begun.left > 0
        if begun and counted and not other then
          begun.left, begun.changed = begun.left - 1, true
        end
        lapse_message(p, o, note_moved(o, members[i], 'L', entry(found[i])), at, counted)
      end
    end
  end
  local kept = rest and string.format('%s %d %s', till, left, (string.byte(runs) == 43 and '+' or '') .. table.concat(rest, ','))
  o.leases[#o.leases + 1] = { token = key, text = kept }
  return spent, kept
end
