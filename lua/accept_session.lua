#!lua flags=allow-oom
-- Locks a session for one lock duration. If the caller names a session, the script locks that session, even if it has
-- no messages. Otherwise the script chooses among the free sessions that have messages to receive, and locks the one
-- that has been free for the longest time. If no session is free, the caller can be registered as a waiter. A
-- repetition returns the session that the token holds.
--
-- With `take` 0 the call is a look: it reports whether a session is free, but does not lock the session. If no session
-- is free, a look also registers the caller as a waiter. A look does not use a lane.
--
-- KEYS[1-36] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front, or nothing for the next free session
-- ARGV[8]    take        1, or 0 for a look
-- ARGV[9]    token       of the lock, chosen at random by the caller
-- ARGV[10]   waiter      the channel on which the caller waits if it gets no session, or nothing
-- ARGV[11]   waiting_for 1 if the caller waits for a session; 0 if it does not wait, and an earlier wait ends
-- ARGV[12...] grants     up to 16 grants in the form of engine/_grants.py, for example for the messages of the session
--
-- Result: { more, due, the time in ms until the lock ends, outcome, the name of the session, the fence of the
--   lock as in receive.lua, or 0 }, and with grants their answers as in grant.lua. `outcome` is taken,
--   found (by a look), locked (by another receiver), lapsing (the lock has ended, but some held messages are not
--   released yet; the next call releases more of them), or none (no session was locked or found). If the outcome is
--   none, `due` is the time in ms until something is due, or 0 if nothing will be due. Otherwise `due` is 0.
-- Refusals: call, DISABLED (receiving is disabled), SESSIONS (the entity has no sessions), FORWARDS (the entity
--   forwards its messages)
-- Facts: use, repeatable if take is 0, laneless if take is 0
-- @use advance answer_repetition begin finish flush next_due next_fence parse_session parse_token refuse same_slot
-- @use session_lock_end sides turns write_lease add_waiter parse_grants take_grants update_session_turns whole_number
local p, refusal = begin(KEYS, ARGV, 'accept_session', 11, true)
if not p then
  return refusal
end
local grants = parse_grants(p, ARGV, 12)
if not grants then
  return refuse('BADCALL', 'grants')
end
local token = parse_token(ARGV[9])
if p.repeated and token then
  local fence, session = string.match(p.repeated, '^=(%d+) (.*)$')
  local till = session and session_lock_end(p, session, token)
  local outcome = till and 'taken' or session and 'none' or p.repeated
  local due = outcome == 'none' and next_due(p) or 0
  local reply = { 0, due, till and till - p.logical or 0, outcome, session or string.sub(ARGV[7], 2),
    till and tonumber(fence) or 0 }
  if #grants == 0 then
    return answer_repetition(p, reply)
  end
  advance(p, 100)
  reply[7] = take_grants(p, grants, false)
  finish(p, p.repeated)
  reply[1] = p.more
  return reply
end
local session, unfit = parse_session(p, ARGV[7])
if unfit or not p.index then
  return unfit or refuse('SESSIONS', 'none')
end
local take, waiter, waiting_for = whole_number(ARGV[8], 0, 1), ARGV[10], whole_number(ARGV[11], 0, 1)
if not take or not token or not waiting_for or take == 0 and (p.lane ~= '' or session)
  or redis.call('HEXISTS', p.leases, token) == 1
  or waiter ~= '' and not same_slot(p.state, waiter) then
  return refuse('BADCALL', 'accept')
end
if p.forwards then
  return refuse('FORWARDS', 'receive')
end
if p.status == 'ReceiveDisabled' or p.status == 'Disabled' then
  return refuse('DISABLED', p.status)
end

advance(p, 100)
flush(p)
if next(p.touched) then
  update_session_turns(p)
end
if waiter ~= '' then
  p.left = redis.call('ZREM', p.waiters, waiter .. ' ' .. SIDES.s.prefix) == 1 or p.left
end
local outcome, due, fence = 'none', 0, 0
if session then
  local other = redis.call('HGET', p.states, '!' .. session)
  if not other then
    outcome = 'taken'
  else
    outcome = session_lock_end(p, session, other) and 'locked' or 'lapsing'
  end
else
  local first = redis.call('ZRANGE', p.turns, TURNS.free, TURNS.locked - 1, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if first then
    session, outcome = string.sub(first, 2), take == 1 and 'taken' or 'found'
  end
end
if outcome == 'taken' then
  fence = next_fence(p)
  write_lease(p, token, p.logical + p.lock, 0, '@' .. session)
  redis.call('ZADD', p.turns, TURNS.locked, 's' .. session)
  redis.call('HSET', p.states, '!' .. session, token)
elseif outcome == 'none' then
  due = next_due(p)
  if waiter ~= '' and waiting_for > 0 then
    add_waiter(p, SIDES.s, waiter, waiting_for)
  end
end
local answers = #grants > 0 and take_grants(p, grants, false) or nil
finish(p, outcome == 'taken' and string.format('=%.0f ', fence) .. session or outcome)
return { p.more, due, outcome == 'taken' and p.lock or 0, outcome, session or '', fence, answers }
