#!lua flags=allow-oom
-- Releases a session: its held messages return to their places, and other receivers can accept the session. No delivery
-- counts as failed.
--
-- KEYS[1-36] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front, or `@` for the session that the token locks
-- ARGV[8]    token       of the lock on the session
--
-- Result: { more, the number of messages that returned }
-- Refusals: call, SESSIONS (the entity has no sessions), LOST (the token does not hold the lock on the session now)
-- Facts: use
-- @use advance answer_repetition begin finish named_session parse_token refuse release_held session_lock_end turns
-- @use unlock_session
local p, refusal = begin(KEYS, ARGV, 'release_session', 8, false)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { 0, tonumber(p.repeated) })
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
local released = release_held(p, session)
unlock_session(p, session, token)
local blocked = tonumber(redis.call('HGET', p.states, '~' .. session) or 0)
if blocked > p.now then
  redis.call('ZADD', p.turns, TURNS.blocked + blocked, 's' .. session)
else
  redis.call('ZREM', p.turns, 's' .. session)
  p.touched[session] = p.touched[session] or true
end
finish(p, released)
return { p.more, released }
