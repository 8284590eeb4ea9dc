#!lua flags=allow-oom
-- Moves all messages of a session to the dead-letter queue: the messages that can be received, the held ones and the
-- deferred ones. Each call moves a limited number of messages. Scheduled messages stay, because they have not been
-- enqueued yet.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front
-- ARGV[8]    token       of the lock on the session
-- ARGV[9]    share       the largest number of messages to move
-- ARGV[10]   changes     changed properties (reason and description), or nothing; they are appended to the changes that
--   a message already has. If a field occurs twice, the last value counts
--
-- Result: { more, the number of messages that were moved, 1 if there may be more to move }
-- Refusals: call, SESSIONS (the entity has no sessions), LOST (the token does not hold the lock on the session now),
--   DUE (due work had to be done first)
-- Facts: use
-- @use advance bury due_name entry_or_default finish index_entries index_name index_remove read_entries
-- @use session_lock_end set_changes answer_repetition count_records_that_fit never_text parse_session parse_token
-- @use lost_record read_records record_of refuse refuse_while_due set_aside whole_number
if p.repeated then
  local moved, others = string.match(p.repeated, '^(%d+) (%d)$')
  return answer_repetition(p, { 0, tonumber(moved), tonumber(others) })
end
local session, unfit = parse_session(p, ARGV[7], true)
local token, share = parse_token(ARGV[8]), whole_number(ARGV[9], 1, 1000)
if unfit or not token or not share then
  return unfit or refuse('BADCALL', 'share')
end
if not session_lock_end(p, session, token) then
  return refuse('LOST', 'session')
end

advance(p, 100)
if p.more == 1 then
  return refuse_while_due(p)
end
local moved, others = 0, 0
for _, letter in ipairs({ 'h', 'a', 'p' }) do
  local indexed = moved < share and index_entries(p, session, letter, 0, 0, share - moved) or {}
  local members, numbers = {}, {}
  for i = 1, #indexed do
    members[i] = index_name(indexed[i])
  end
  local entries = read_entries(p, members, 2097152)
  for i = 1, #entries do
    numbers[i] = record_of(members[i], entries[i])
  end
  local fit = #members > 0 and count_records_that_fit(p, numbers, 2097152, entries) or 0
  local found = fit > 0 and read_records(p.keys, { unpack(numbers, 1, fit) }) or {}
  for i = 1, fit do
    local e = entry_or_default(entries[i], found[i])
    if found[i] == LOST_RECORD then
      set_aside(p, { members[i] }, { entries[i] }, session, letter)
    else
      if letter == 'a' and e.expires ~= NEVER_TEXT then
        p.unawaited[#p.unawaited + 1] = due_name('e', members[i])
      end
      index_remove(p, session, letter, tonumber(members[i]))
      local appended = e.changes ~= '' and ARGV[10] ~= ''
      set_changes(p, e, appended and string.sub(e.changes, 1, -2) .. string.sub(ARGV[10], 2) or ARGV[10])
      bury(p, members[i], e, 'A')
    end
    moved = moved + 1
  end
  if fit < #members or moved == share then
    others = 1
    break
  end
end
p.touched[session] = true
finish(p, string.format('%d %d', moved, others))
return { p.more, moved, others }
