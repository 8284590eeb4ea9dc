-- Removes what is kept of messages besides their places: the events of their expiry or of the end of their delay, and
-- their members of the index of sessions. `found` is the first result of movable_messages.
-- @use due_name index_remove read_records record_of record_session
local function leave_places(p, found)
  local awaited, names, numbers, letters = redis.call('ZCARD', p.due) > 0, {}, {}, {}
  for i = 1, #found.names do
    local letter = found.letters[i]
    if awaited and letter and letter ~= 'p' then
      p.unawaited[#p.unawaited + 1] = due_name(letter == 'd' and 'd' or 'e', found.names[i])
    end
    if letter and p.index and tonumber(found.names[i]) then -- only the main side has sessions
      names[#names + 1], letters[#letters + 1] = found.names[i], letter
      numbers[#numbers + 1] = record_of(found.names[i], found.entries[i])
    end
  end
  local records = #names > 0 and read_records(p.keys, numbers) or {}
  for i = 1, #records do
    local session = record_session(records[i]) -- none if the record is lost
    if session then
      index_remove(p, session, letters[i], tonumber(names[i]))
      p.touched[session] = p.touched[session] or true
    end
  end
end
