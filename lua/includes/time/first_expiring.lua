-- Returns a level of priority with the first of its messages that the pass has not moved, if that message has expired;
-- or nil. It reads the messages of the level in parts, and keeps in `level` what it has read.
-- @use entry lost_record never read_many read_record
local function first_expiring(p, o, level)
  while not level.over do
    if level.at > #level.members then
      level.seen, level.at = level.seen + #level.members, 1
      level.members = redis.call('ZRANGE', p.order, level.from, level.to, 'BYSCORE', 'LIMIT', level.seen, 16)
      level.entries = read_many('HMGET', p.entries, level.members)
      if #level.members == 0 then
        level.over = true
        return nil
      end
    end
    local member, text = level.members[level.at], level.entries[level.at]
    if not o.by[member] then
      if level.told ~= member then
        level.told, level.record, level.e = member, nil, text and entry(text)
        if text then
          level.expires = tonumber(level.e.expires)
        else
          level.record = read_record(p.keys, member)
          level.expires = string.byte(level.record) == 120 and tonumber(string.sub(level.record, 16, 28)) or NEVER
          if level.record == LOST_RECORD then -- nobody knows when it expires, so it is taken away now, before others
            level.expires = 0
          end
        end
        level.number = tonumber(member)
      end
      if level.expires > p.now then
        level.over, level.fresh = true, level.expires
        return nil
      end
      return level
    end
    level.at = level.at + 1
  end
  return nil
end
