#!lua flags=allow-oom
-- Locks a session for the full duration again, and with it what is held of it.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     behind a sign
-- ARGV[8]    token       of its lock
--
-- Result: { more, for how many ms it is locked }
-- Refusals: call, SESSIONS (the entity has none), LOST (the lock on the session)
-- @use advance answer_repetition begin finish parse_session parse_token refuse session_lock_end write_lease
local p, refusal = begin(KEYS, ARGV, 'renew_session', 8, false)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { 0, math.max(0, tonumber(p.repeated) - p.logical) })
end
local session, unfit = parse_session(p, ARGV[7], true)
local token = parse_token(ARGV[8])
if unfit or not token then
  return unfit or refuse('BADCALL', 'token')
end
if not session_lock_end(p, session, token) then
  return refuse('LOST', 'session')
end

advance(p, 100)
write_lease(p, token, p.logical + p.lock, 0, '@' .. session)
finish(p, string.format('%.0f', p.logical + p.lock))
return { p.more, p.lock }
