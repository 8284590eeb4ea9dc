#!lua
-- Sets or removes the state of a session: bytes that later receivers of the session can read, and that outlive its
-- messages.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front, or `@` for the session that the token locks
-- ARGV[8]    token       of the lock on the session
-- ARGV[9]    given       1, or 0 to remove the state
-- ARGV[10]   state       the new state
--
-- Result: { more }
-- Refusals: call, SESSIONS (the entity has no sessions), LOST (the token does not hold the lock on the session now),
--   TOOLARGE (the state is larger than a message may be), QUOTA (the entity is full; the detail gives its bytes and its
--   quota), DUE (the entity is full, but due work had to be done first)
-- Facts: use, freeing if given is 0, at_limit
-- @use advance answer_repetition apply_state check_state finish
if p.repeated then
  return answer_repetition(p, { 0 })
end
local plan, refused = check_state(p, ARGV, 7)
if not plan then
  return refused
end

advance(p, 100)
apply_state(p, plan)
finish(p, '')
return { p.more }
