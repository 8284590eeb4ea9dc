#!lua flags=allow-oom
-- Locks a session of a name for one lock duration, even if it has no messages. A repetition returns whether the token
-- holds the session. The next free session is a gift of credit (grant.lua).
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front
-- ARGV[8]    token       of the lock, chosen at random by the caller
-- ARGV[9...] grants      up to 32 grants in the form of engine/_grants.py, for example for the messages of the session
--
-- Result: { more, the time in ms until the lock ends, outcome, the fence of the lock as in receive_deferred.lua, or 0
--   }, and with grants their answers as in grant.lua. `outcome` is taken, locked (by another receiver), lapsing (the
--   lock has ended, but some held messages are not released yet; the next call releases more of them), or none (a
--   repetition, and the lock has ended).
-- Refusals: call, DISABLED (receiving is disabled), SESSIONS (the entity has no sessions), FORWARDS (the entity
--   forwards its messages)
-- Facts: use
-- @use advance answer_repetition finish flush next_fence parse_session parse_token refuse session_lock_end turns
-- @use write_lease parse_grants take_grants update_session_turns
local grants = parse_grants(p, ARGV, 9)
if not grants then
  return refuse('BADCALL', 'grants')
end
local token = parse_token(ARGV[8])
if p.repeated and token then
  local fence, session = string.match(p.repeated, '^=(%d+) (.*)$')
  local till = session and session_lock_end(p, session, token)
  local reply = { 0, till and till - p.logical or 0, till and 'taken' or session and 'none' or p.repeated,
    till and tonumber(fence) or 0 }
  if #grants == 0 then
    return answer_repetition(p, reply)
  end
  advance(p, 100)
  reply[5] = take_grants(p, grants, false)
  finish(p, p.repeated)
  reply[1] = p.more
  return reply
end
local session, unfit = parse_session(p, ARGV[7], true)
if unfit then
  return unfit
end
if not token or redis.call('HEXISTS', p.leases, token) == 1 then
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
local other, outcome, fence = redis.call('HGET', p.states, '!' .. session), 'taken', 0
if other then
  outcome = session_lock_end(p, session, other) and 'locked' or 'lapsing'
else
  fence = next_fence(p)
  write_lease(p, token, p.logical + p.lock, 0, '@' .. session)
  redis.call('ZADD', p.turns, TURNS.locked, 's' .. session)
  redis.call('HSET', p.states, '!' .. session, token)
end
local answers = #grants > 0 and take_grants(p, grants, false) or nil
finish(p, other and outcome or string.format('=%.0f ', fence) .. session)
return { p.more, other and 0 or p.lock, outcome, fence, answers }
