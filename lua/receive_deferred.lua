#!lua flags=allow-oom
-- Gives out deferred messages by name; in the wide mode, active and delayed messages too. If one of the messages is
-- missing or locked, the call gives out none of them. If the time to live of a message of the main side has passed, the
-- message counts as missing. The call then lets the message expire, even if it gives out nothing. The call does not
-- look at the expiry of messages that do not fit into its reply. A message of the main side whose record is lost also
-- counts as missing, and becomes a dead letter. In the wide mode, the call gives out nothing while due
-- work is left.
--
-- The call gives out messages in the order of the names, as many as fit into `room` bytes, but at least one. The
-- messages that do not fit stay deferred. The result contains their number, so that the caller can ask for them again.
-- In the mode delete, the call gives out all of the messages or none, because messages that it has already given out
-- and deleted could not be restored if a later message is missing.
--
-- A repetition gives out the messages that the token still holds, never more than the first call. In the mode delete, a
-- repetition gives out no messages.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    mode        lock, or delete. With ` any` behind it, the call also gives out active and delayed messages
-- ARGV[8]    token       of the lease, chosen at random by the caller
-- ARGV[9]    session     the session of the messages, with `=` in front, `@` for the session that the token locks, or
--   nothing. With a session, the token is that of its lock
-- ARGV[10]   room        the largest number of bytes to give out, changed properties included; the first message may
--   exceed it
-- ARGV[11...] names      of the messages, of either side
--
-- Result: { more, lock duration, names, records, extras, the names of messages that are not deferred here, the number
--   of messages at the end of the list that did not fit, the fence }. `extras` has what delivery_extras adds for some
--   messages. The fence is higher than that of all earlier locks in the partition; it is 0 without a new lock, and in
--   a session, whose lock has a fence of its own.
-- Refusals: call, DISABLED (receiving is disabled), SESSIONS (the entity requires sessions but the call names none, or
--   the entity has none but the call names one), LOST (the token does not hold the lock on the session now), HELD (the
--   session would have more held messages than allowed), RESERVED (a reader has reserved the main side), DUE (some
--   messages are not deferred, but due work had to be done first)
-- Facts: use
-- @use add_pair advance answer_repetition count_held delivery_extras discard due_name entry entry_or_default
-- @use entry_text expire finish index_add index_remove index_text lost_record message_names messages_again most_held
-- @use name_runs named_session never_text next_fence parse_token read_many read_messages refuse refuse_while_due
-- @use session_lock_end set_aside side_of split_words whole_number write_lease
local mode, token, room = ARGV[7], parse_token(ARGV[8]), whole_number(ARGV[10], 1, 1073741824)
local wide = string.sub(mode, -4) == ' any'
if wide then
  mode = string.sub(mode, 1, -5)
end
if p.repeated and token then
  local left, fence, handed = string.match(p.repeated, '^=(%d+) (%d+) (.*)$')
  -- A token never holds more messages than its call gave out, so those that are read here fit into the room.
  local names, records, extras, till = messages_again(p, token, handed or '')
  return answer_repetition(p, { 0, till > 0 and till - p.logical or p.lock, names, records, extras,
    left and {} or split_words(p.repeated), tonumber(left or 0), tonumber(fence or 0) })
end
local session, unfit = named_session(p, ARGV[9], false, token)
if unfit then
  return unfit
end
local members = message_names(ARGV, 11)
if not members or not token or not room or not session and redis.call('HEXISTS', p.leases, token) == 1
  or mode ~= 'lock' and mode ~= 'delete' then
  return refuse('BADCALL', 'names')
end
if p.status == 'ReceiveDisabled' or p.status == 'Disabled' then
  return refuse('DISABLED', p.status)
end

for i = 1, #members do
  if p.index and not session and tonumber(members[i]) then
    return refuse('SESSIONS', 'required')
  elseif p.reserved and tonumber(members[i]) then
    return refuse('RESERVED', 'receive_deferred')
  end
end
if session and not session_lock_end(p, session, token) then
  return refuse('LOST', 'session')
end
if session and mode == 'lock' and count_held(p, session) + #members > MOST_HELD then
  return refuse('HELD', string.format('%d', MOST_HELD))
end

advance(p, 100)
if wide and p.more == 1 then
  return refuse_while_due(p)
end
-- The letters of the messages are those of the index of sessions: p deferred, a active. A delayed message has a d.
local scores, letters, indexed = read_many('ZMSCORE', p.order, members), {}, {}
for i = 1, #members do
  local side, number = side_of(members[i])
  local place = scores[i] and tonumber(scores[i]) - number
  letters[i] = place == side.deferred and 'p'
  if wide and place and not letters[i] then
    letters[i] = place == side.delayed and 'd' or place >= side.ready and place < tonumber(side.to) and 'a'
  end
  indexed[i] = session and session .. '\255' .. (letters[i] or 'p') .. index_text(tonumber(members[i]) or 0)
end
indexed = session and read_many('ZMSCORE', p.index, indexed)
local there, letter_of = {}, {}
for i = 1, #members do
  if letters[i] and (not session or indexed[i]) then
    there[#there + 1], letter_of[members[i]] = members[i], letters[i]
  elseif p.more == 1 then
    return refuse_while_due(p)
  end
end
local fit, entries, found = read_messages(p, there, room)
local extras = {}
for i = 1, fit do
  local member = there[i]
  if found[i] == LOST_RECORD and tonumber(member) then
    set_aside(p, { member }, { entries[i] }, session, letter_of[member])
    letter_of[member] = nil
  elseif letter_of[member] == 'p' and tonumber(string.sub(entries[i], 21, 33)) <= p.now then
    if p.index then
      index_remove(p, session, 'p', tonumber(member))
    end
    expire(p, member, entry(entries[i]))
    letter_of[member] = nil
  end
end
local missing = {}
for i = 1, #members do
  if not letter_of[members[i]] then
    missing[#missing + 1] = members[i]
  end
end
if #missing > 0 then
  finish(p, table.concat(missing, ' '))
  return { p.more, p.lock, {}, {}, {}, missing, 0, 0 }
end

local left = #members - fit
if left > 0 and mode == 'delete' then
  finish(p, string.format('=%d 0 ', #members))
  return { p.more, p.lock, {}, {}, {}, {}, #members, 0 }
end
if left > 0 then
  members = { unpack(members, 1, fit) }
end
for i = 1, fit do
  -- An active message may have no entry.
  entries[i] = entries[i] or entry_text(entry_or_default(nil, found[i]))
  delivery_extras(extras, i, entries[i])
end
for i = 1, #members do
  local member = members[i]
  local side, number = side_of(member)
  if session then
    index_remove(p, session, letters[i], number)
  end
  if letters[i] == 'd' then
    p.unawaited[#p.unawaited + 1] = due_name('d', member)
  elseif letters[i] == 'a' and string.sub(entries[i], 21, 33) ~= NEVER_TEXT then
    p.unawaited[#p.unawaited + 1] = due_name('e', member)
  end
  if mode == 'lock' then
    add_pair(p.placed, (session and side.held or side.locked) + number, member)
    add_pair(p.entered, member, token .. string.sub(entries[i], 12))
    if session then
      index_add(p, session, 'h', number)
      p.touched[session] = p.touched[session] or true -- its holder has messages now
    end
  else
    discard(p, member, entry(entries[i]))
  end
end
p.given = p.noted and { { letter = mode == 'lock' and 'g' or 'k', names = members, records = found } }
local fence = 0
if mode == 'lock' and not session then
  fence = next_fence(p)
  write_lease(p, token, p.logical + p.lock, #members, name_runs(members))
end
finish(p, string.format('=%d %.0f ', left, fence) .. (session and mode == 'lock' and name_runs(members) or ''))
return { p.more, p.lock, members, found, extras, {}, left, fence }
