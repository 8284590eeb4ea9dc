-- Lets the oldest messages expire that need no index for it (see await_expiry), at most `share`, and finds the next bound.
-- @use expire
-- @use gather
-- @use living
-- @use readable
-- @use band
-- @use records
-- @use stand_up
local function fade(p, share)
  local bound, room = nil, 2097152
  for level = 0, 7 do
    local seen, fresh = 0, nil
    while share > 0 and not fresh do
      local first, last = level * BAND, (level + 1) * BAND - 1
      local members = redis.call('ZRANGE', p.order, first, last, 'BYSCORE', 'LIMIT', seen, math.min(share, 16))
      if #members == 0 then
        break
      end
      local entries = gather('HMGET', p.entries, members)
      local numbers = {}
      for i = 1, #members do
        numbers[i] = entries[i] and string.match(entries[i], '^%d+;(%d*);', 34) or ''
        if numbers[i] == '' then
          numbers[i] = members[i]
        end
      end
      local fit = readable(p, numbers, room)
      local found = records(p.keys, { unpack(numbers, 1, fit) })
      seen = seen + fit
      for i = 1, fit do
        room = room - #found[i]
        local e = living(entries[i], found[i])
        local expires = tonumber(e.expires)
        if expires > p.now then
          fresh = expires
          break
        end
        p.unawaited[#p.unawaited + 1] = 'e' .. members[i]
        if p.seats then
          stand_up(p, members[i], found[i])
        end
        expire(p, members[i], e)
        share = room > 0 and share - 1 or 0
        if share == 0 then
          break
        end
      end
    end
    if share == 0 then
      return 0 -- the old bound still holds
    end
    if fresh and fresh < 9999999999999 then
      bound = math.min(bound or fresh, fresh)
    end
  end
  p.head = bound or 9999999999999
  p.changed.head = p.head
  return share
end
