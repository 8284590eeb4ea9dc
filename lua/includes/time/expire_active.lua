-- Makes an active message expire at the time `at`. `record` is its record, if it was already read. Returns its item.
-- @use entry_or_default lost_record note_dead note_expired note_moved read_record record_session
local function expire_active(p, o, member, e, record, at)
  local stored, lost = e and e.record ~= '' and e.record or member, record == LOST_RECORD
  if not record and (p.index or not e) then
    record = read_record(p.keys, stored)
  end
  e = e or entry_or_default(nil, record)
  local m = note_moved(o, member, 'e', e)
  m.session = p.index and record_session(record)
  o.room = o.room - e.size
  if lost then
    note_dead(o, m, 'R')
  else
    note_expired(p, o, m, at)
  end
  return m
end
