-- Removes what is kept of ready messages besides their places: the events of their expiry, and their members of the
-- index of sessions. `found` is the first result of movable_messages.
-- @use due_name index_remove read_records record_of record_session
local function leave_ready(p, found)
  local awaited, names, numbers = redis.call('ZCARD', p.due) > 0, {}, {}
  for i = 1, #found.names do
    if found.main[i] then
      if awaited then
        p.unawaited[#p.unawaited + 1] = due_name('e', found.names[i])
      end
      names[#names + 1], numbers[#numbers + 1] = found.names[i], record_of(found.names[i], found.entries[i])
    end
  end
  local records = p.index and #names > 0 and read_records(p.keys, numbers) or {}
  for i = 1, #records do
    local session = record_session(records[i]) -- none if the record is lost
    if session then
      index_remove(p, session, 'a', tonumber(names[i]))
      p.touched[session] = p.touched[session] or true
    end
  end
end
