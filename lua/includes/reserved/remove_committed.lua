-- Removes a share of the committed messages, those up to the floor of the pin: up to 1,000 messages or 2 MB. Returns
-- whether there were any; then more may be left.
-- @use band delete_moved message_sizes read_entries ready_levels sentinel
local function remove_committed(p, pin)
  local levels, most, room = ready_levels(p, 0, pin.floor), 1000, 2097152
  local dropped, dropped_sizes, noted = p.dropped or {}, p.dropped_sizes or {}, p.noted
  p.dropped, p.dropped_sizes = dropped, dropped_sizes
  -- Often no message of the partition has an entry.
  local has_entries = redis.call('HLEN', p.entries) > redis.call('HEXISTS', p.entries, SENTINEL.name)
  for level = 1, #levels do
    local first = levels[level] * BAND
    local names = redis.call('ZRANGE', p.order, first, first + pin.floor, 'BYSCORE', 'LIMIT', 0, most)
    local entries = has_entries and read_entries(p, names, room) or {}
    local kept = entries[1] == nil and names or { unpack(names, 1, #entries) }
    local sizes, sum = message_sizes(p, kept, entries, room)
    if level > 1 and sum > room then
      break
    end
    -- These are all messages of the level up to the last of them, so one range has them.
    redis.call('ZREMRANGEBYSCORE', p.order, first, first + tonumber(names[#sizes]))
    for i = 1, #sizes do
      local name = names[i]
      if entries[i] then
        delete_moved(p, name, entries[i])
      else
        local n = #dropped + 1
        dropped[n], dropped_sizes[n] = name, sizes[i]
      end
      if noted then
        noted[#noted + 1] = 'c' .. name
      end
    end
    most, room = most - #sizes, room - sum
    if most == 0 or room <= 0 or #sizes < #names then
      break
    end
  end
  return #levels > 0
end
