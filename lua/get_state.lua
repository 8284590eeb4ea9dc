#!lua flags=no-writes
-- Reads the state of a session: for the holder of its lock, or for anybody who only looks.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front, or `@` for the session that the token locks
-- ARGV[8]    token       of the lock on the session, or nothing to read the state whoever holds the lock
--
-- Result: { 0, the state if the session has one }
-- Refusals: call, SESSIONS (the entity has no sessions), LOST (the token does not hold the lock on the session now)
-- Facts: repeatable, laneless
-- @use named_session parse_token refuse session_lock_end
local token = ARGV[8] ~= '' and parse_token(ARGV[8])
local session, unfit = named_session(p, ARGV[7], true, token)
if unfit or token == nil then
  return unfit or refuse('BADCALL', 'token')
end
if token and not session_lock_end(p, session, token) then
  return refuse('LOST', 'session')
end
return { 0, redis.call('HGET', p.states, '=' .. session) or nil }
