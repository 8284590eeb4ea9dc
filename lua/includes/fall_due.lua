-- Does what is due by the clock, at most `share` of it: activates what was scheduled, brings back what was delayed, and lets
-- expire.
-- @use await_expiry
-- @use band
-- @use bucket
-- @use gather
-- @use make_ready
-- @use expire
-- @use entry
-- @use record_of
-- @use seat
-- @use session_in
-- @use side_of
-- @use stand_up
-- @use turns
-- @use unseat
local function fall_due(p, share)
  local due = redis.call('ZRANGE', p.due, '-inf', p.now, 'BYSCORE', 'LIMIT', 0, share)
  local n = #due
  if n == 0 then
    return share
  end
  local members = {}
  for i = 1, n do
    members[i] = string.sub(due[i], 2)
  end
  local entries = gather('HMGET', p.entries, members)
  local room = 2097152 -- what is activated is read and written again
  for i = 1, n do
    if room <= 0 then
      return 0
    end
    local member, kind = members[i], string.byte(due[i])
    p.unawaited[#p.unawaited + 1] = due[i]
    if kind == 119 then -- w: the delay is over
      local side, number = side_of(member)
      make_ready(p, member, side, number, entry(entries[i]))
    elseif kind == 98 then -- b: a session is blocked no longer
      if tonumber(redis.call('HGET', p.states, '~' .. member) or 0) <= p.now then
        redis.call('HDEL', p.states, '~' .. member)
        local score = tonumber(redis.call('ZSCORE', p.turns, 's' .. member) or 0)
        if score >= TURNS.blocked then
          redis.call('ZREM', p.turns, 's' .. member)
        end
        p.touched[member] = p.touched[member] or true
      end
    elseif kind == 101 then -- e: an active message expires
      if p.seats then
        local record = redis.call('HGET', bucket(p.keys, record_of(member, entries[i])), record_of(member, entries[i]))
        room = room - #record
        stand_up(p, member, record)
      end
      expire(p, member, entries[i] and entry(entries[i]) or {
        level = '0', home = 'a', reason = '-', failures = 0, expires = '', record = '', changes = '',
        size = redis.call('HSTRLEN', bucket(p.keys, tonumber(member)), member),
      })
    else -- s: a scheduled message is enqueued now, under a new number
      local key = bucket(p.keys, tonumber(member))
      local record = redis.call('HGET', key, member)
      redis.call('HDEL', key, member)
      local number = redis.call('HINCRBY', p.store, 'seq', 1)
      local name = string.format('%.0f', number)
      local level = string.sub(record, 2, 2)
      local expires = math.min(p.now + math.min(tonumber(string.sub(record, 3, 15)), p.ttl), 9999999999999)
      local header = 'a' .. level .. string.format('%013.0f', p.now)
      if expires < 9999999999999 then
        header = 'x' .. string.sub(header, 2) .. string.format('%013.0f', expires)
      end
      local active = header .. string.sub(record, 16)
      redis.call('HSET', bucket(p.keys, number), name, active)
      p.bytes, room = p.bytes + #active - #record, room - #active
      if #active > p.biggest then
        p.biggest = #active
        p.changed.biggest = #active
      end
      p.taken[#p.taken + 1] = member
      p.placed[#p.placed + 1] = tonumber(level) * BAND + number
      p.placed[#p.placed + 1] = name
      await_expiry(p, number, expires)
      if p.seats then
        local session = session_in(active)
        unseat(p, session, 's', tonumber(member))
        seat(p, session, 'a', number)
        p.touched[session] = 'ready'
      end
    end
  end
  return share - n
end
