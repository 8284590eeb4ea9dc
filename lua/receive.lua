#!lua flags=allow-oom
-- Gives out the oldest messages of a side that can be received. They are locked under a token for one lock duration, or
-- are deleted immediately. Expired messages are not given out. A message of the main side whose record is lost becomes
-- a dead letter. If a receiver gets fewer messages than it waits for,
-- because there are no more, the script registers the receiver as a waiter. A waiter is woken when messages come, and
-- needs no second call to register. A repetition gives out the messages that the token holds. In the mode delete, a
-- repetition gives out no messages, so each message is given out at most once.
--
-- With `wanted` 0 the call is a look: it reports whether a message can be received, but gives none out. If no message
-- can be received, the receiver is registered as a waiter, as after a receive that gave out nothing. A look also counts
-- an expired message that is still stored. A look does not use a lane, so a repeated look simply looks again.
--
-- KEYS[1-36] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    side        nothing for the main side, d for the dead-letter queue, or t for the transfer dead-letter
--   queue
-- ARGV[8]    mode        lock, or delete
-- ARGV[9]    wanted      the largest number of messages to give out; 0 for a look
-- ARGV[10]   room        the largest number of bytes to give out, changed properties included; the first message may
--   exceed it
-- ARGV[11]   token       of the lease, chosen at random by the caller
-- ARGV[12]   waiter      the channel on which the receiver waits if it gets fewer messages than it wants, or nothing
-- ARGV[13]   waiting_for the number of messages that the receiver waits for, including those in this reply. With 0 the
--   receiver does not wait, and an earlier wait ends
-- ARGV[14]   session     the session whose next messages are wanted, with `=` in front, or nothing. With a session,
--   the token is that of its lock
--
-- Result: { more, due, lock duration, names, records, extras, waits, fence }. `due` is -1 if a look found a message. If
--   there are no messages in the reply, or if the receiver waits for more of them, `due` is the time in ms until
--   something is due, or 0 if nothing will be due. Otherwise `due` is 0. `extras` has what delivery_extras adds for
--   some messages. `waits` is 1 if the receiver is now registered as a waiter. `fence` is higher than that of all
--   earlier locks in the partition; it is 0 without a new lock, and in a session, whose lock has a fence of its own.
-- Refusals: call, DISABLED (receiving is disabled), SESSIONS (the entity requires sessions but the call names none, or
--   the entity has none but the call names one), LOST (the token does not hold the lock on the session now), FORWARDS
--   (the messages of the main side are forwarded, so no receiver gets them), RESERVED (a reader has reserved the main
--   side)
-- Facts: use, repeatable if wanted is 0, laneless if wanted is 0
-- @use add_waiter advance answer_repetition begin choose_messages delete_received finish flush lock_messages next_due
-- @use next_fence number_runs parse_session parse_token receive_in_session refuse repeat_receive same_slot
-- @use session_lock_end set_aside side_named whole_number write_lease
local p, refusal = begin(KEYS, ARGV, 'receive', 14, false)
if not p then
  return refusal
end
local token = parse_token(ARGV[11])
if p.repeated and token then
  local again = repeat_receive(p, token, p.repeated)
  local waits_at = ARGV[14] ~= '' and 'h' or ARGV[7]
  if ARGV[12] ~= '' and redis.call('ZSCORE', p.waiters, ARGV[12] .. ' ' .. waits_at) then
    again[2], again[7] = next_due(p, p.topic and ARGV[7] ~= ''), 1
  end
  again[7], again[8] = again[7] or 0, ARGV[14] == '' and tonumber(p.repeated) or 0
  return answer_repetition(p, again)
end
local side, mode = side_named(ARGV[7]), ARGV[8]
local wanted, room = whole_number(ARGV[9], 0, 1000), whole_number(ARGV[10], 1, 1073741824)
local waiter, waiting_for = ARGV[12], whole_number(ARGV[13], 0, 1000)
local session, unfit = parse_session(p, ARGV[14])
if unfit then
  return unfit
end
if not side or not side.from or session and side.prefix ~= '' or not wanted or not room or not token or not waiting_for
  or mode ~= 'lock' and mode ~= 'delete' then
  return refuse('BADCALL', 'receive')
end
if wanted == 0 and p.lane ~= '' then
  return refuse('BADCALL', 'a look has no place in a lane')
end
if p.index and not session and side.prefix == '' then
  return refuse('SESSIONS', 'required')
end
if session then
  if not session_lock_end(p, session, token) then
    return refuse('LOST', 'session')
  end
elseif redis.call('HEXISTS', p.leases, token) == 1 then
  return refuse('BADCALL', 'token')
end
if waiter ~= '' and not same_slot(p.state, waiter) then
  return refuse('BADCALL', 'waiter')
end
if p.forwards and side.prefix == '' then
  return refuse('FORWARDS', 'receive')
end
if p.reserved and side.prefix == '' then
  return refuse('RESERVED', 'receive')
end
if p.status == 'ReceiveDisabled' or p.status == 'Disabled' then
  return refuse('DISABLED', p.status)
end

p.upkeep = p.topic and side.prefix == '' -- the client that publishes the scheduled messages of the topic
advance(p, 100)
local waits_at, most = session and side_named('h') or side, wanted
if waiter ~= '' then
  -- A client may wait on both sides under one channel, so only the entry of this side is removed.
  p.left = redis.call('ZREM', p.waiters, waiter .. ' ' .. waits_at.prefix) == 1 or p.left
end
local steps = session and receive_in_session(p, session)
if session then
  most = steps.begin(wanted)
end

local chosen = choose_messages(p, side, token, most, room, steps and steps.members)
local n, names, numbers = chosen.n, chosen.names, chosen.numbers
if chosen.lost then
  set_aside(p, chosen.lost, chosen.lost_entries, session, 'a')
end
if session then
  steps.take(numbers, n, mode == 'lock')
end
p.given = p.noted and n > 0 and { { letter = mode == 'lock' and 'g' or 'k', names = names, records = chosen.records } }
local fence = 0
if n > 0 and mode == 'lock' then
  lock_messages(p, chosen, session and side.held or side.locked)
  if not session then
    write_lease(p, token, p.logical + p.lock, n, number_runs(side.prefix, numbers))
    fence = next_fence(p)
  end
elseif n > 0 then
  delete_received(p, names, chosen.entries)
end

local due, waits = 0, 0
local there = false
if wanted == 0 and session then
  there = most == 0 and #steps.members(0, 1) > 0
elseif wanted == 0 then
  there = redis.call('ZCOUNT', p.order, side.from, side.to) > 0
end
if there then
  due = -1
elseif n == 0 then
  flush(p)
  due = next_due(p, p.topic and side.prefix ~= '')
  if waiter ~= '' and waiting_for > 0 then
    waits = 1
    add_waiter(p, waits_at, waiter, waiting_for)
    if session then
      steps.wait(waiter)
    end
  end
elseif chosen.emptied and not session and waiter ~= '' and waiting_for > n then
  flush(p)
  due, waits = next_due(p, p.topic and side.prefix ~= ''), 1
  -- The receiver reads the due time in this reply, so it need not be woken for the locks that it was just given.
  p.sooner = math.huge
  add_waiter(p, waits_at, waiter, waiting_for - n)
end
local said = fence > 0 and string.format('%.0f', fence) or ''
if session and n > 0 then
  said = number_runs('', numbers)
end
finish(p, said)
return { p.more, due, p.lock, names, chosen.records, chosen.extras, waits, fence }
