-- Makes a scheduled message active at the time `at`, under a new number. Returns its item.
-- @use await_expiry entry_or_default lost_record never note_dead note_moved read_record record_session supply_turn
local function activate(p, o, member, at)
  local record = read_record(p.keys, member)
  if record == LOST_RECORD then
    local m = note_moved(o, member, 'a', entry_or_default(nil, record))
    o.room = o.room - m.e.size
    note_dead(o, m, 'R')
    return m
  end
  local same = string.sub(record, 2, 15)
  if same ~= o.alike.of or at ~= o.alike.at then -- messages that were scheduled together have the same header
    local level, expires = string.sub(record, 2, 2), math.min(at + math.min(tonumber(string.sub(record, 3, 15)), p.ttl), NEVER)
    local head = 'a' .. level .. string.format('%013.0f', at)
    if expires < NEVER then
      head = 'x' .. string.sub(head, 2) .. string.format('%013.0f', expires)
    end
    o.alike = { of = same, at = at, level = level, expires = expires, head = head, text = string.format('%013.0f', expires) }
  end
  local head, expires = o.alike.head, o.alike.expires
  local m = note_moved(o, member, 'a', {
    mark = ' ', level = o.alike.level, home = 'a', reason = '-', failures = 0, expires = o.alike.text, size = #head + #record - 15,
    record = '', before = '', changes = '',
  })
  o.seq = o.seq or tonumber(redis.call('HGET', p.store, 'seq')) + o.leap
  o.seq = o.seq + 1
  m.number, m.name, m.head, m.record = o.seq, string.format('%.0f', o.seq), head, record
  m.session = p.index and record_session(record)
  o.activated[#o.activated + 1] = m
  o.room = o.room - m.e.size
  m.is, m.indexed = 'ready', expires < o.horizon
  o.horizon = math.max(o.horizon, expires)
  supply_turn(p, o, m, 1, at)
  if expires <= p.now then
    await_expiry(o, m, expires)
  end
  return m
end
