#!lua flags=allow-oom
-- Releases a session: its held messages return to their places, and other receivers can accept the session. No delivery
-- counts as failed.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front, or `@` for the session that the token locks
-- ARGV[8]    token       of the lock on the session
-- ARGV[9...] grants      up to 32 grants in the form of engine/_grants.py
--
-- Result: { more, the number of messages that returned }; and with grants an empty list and the answers, as in
--   grant.lua
-- Refusals: call, SESSIONS (the entity has no sessions), LOST (the token does not hold the lock on the session now)
-- Facts: use
-- @use advance end_settlement let_go_of_session named_session parse_grants parse_token refuse release_held
-- @use session_lock_end
local token, grants = parse_token(ARGV[8]), parse_grants(p, ARGV, 9)
if not token or not grants then
  return refuse('BADCALL', token and 'grants' or 'token')
end
local released = tonumber(p.repeated)
if not released then
  local session, unfit = named_session(p, ARGV[7], true, token)
  if unfit then
    return unfit
  elseif not session_lock_end(p, session, token) then
    return refuse('LOST', 'session')
  end
  advance(p, 100)
  released = release_held(p, session)
  let_go_of_session(p, session, token)
end
return end_settlement(p, string.format('%d', released), { 0, released }, grants, true)
