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
-- @use advance answer_repetition bury due_name entry_or_default finish index_remove lost_record never_text
-- @use parse_session parse_token read_messages refuse refuse_while_due session_lock_end session_messages set_aside
-- @use set_changes whole_number
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
  local members = moved < share and session_messages(p, session, letter, 0, 0, share - moved) or {}
  local fit, entries, found = read_messages(p, members, 2097152)
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
