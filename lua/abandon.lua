#!lua flags=allow-oom
-- Releases locked messages, so that they can be received again. Each message returns to its own place, immediately or
-- after a delay, unless it has reached the delivery limit or has expired. A delay holds back the whole session of the
-- message, because a session keeps its order. Each delivery counts as failed, unless the client releases the messages
-- unread or was interrupted. The next delivery of a message reports that the client was interrupted; so does the one
-- after it, if the message was then released unread.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    counted     1 if the deliveries count as failed, 0 if the client releases the messages unread, or i if the
--   client was interrupted
-- ARGV[8...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name, its changed properties (or nothing) and a delay in ms. Up to 32 grants may follow the
--   groups, in the form of engine/_grants.py
--
-- Result: { more, the names of messages whose lock was lost }; and with grants an empty list and the answers, as in
--   grant.lua
-- Refusals: call
-- Facts: use
-- @use apply_release check_abandon settle_messages
local list, after = check_abandon(ARGV, 7, true)
if not list then
  return after
end
return settle_messages(p, ARGV, list, after, apply_release, ARGV[7])
