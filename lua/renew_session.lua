#!lua flags=allow-oom
-- Renews the lock on a session, and on its held messages, for the full lock duration.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front, or `@` for the session that the token locks
-- ARGV[8]    token       of the lock on the session
--
-- Result: { more, the time in ms until the lock ends }
-- Refusals: call, SESSIONS (the entity has no sessions), LOST (the token does not hold the lock on the session now)
-- Facts: use
-- @use advance answer_repetition finish named_session parse_token refuse session_lock_end write_lease
if p.repeated then
  return answer_repetition(p, { 0, math.max(0, tonumber(p.repeated) - p.logical) })
end
local token = parse_token(ARGV[8])
local session, unfit = named_session(p, ARGV[7], true, token)
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
