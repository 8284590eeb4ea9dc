#!lua flags=allow-oom
-- Defers locked messages. They keep their numbers, and can then be received by number only. Deferring counts as a
-- failed delivery, so a message at the delivery limit goes to the dead-letter queue instead. The reply does not report
-- this. The delivery count of a dead letter does not change.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name and its changed properties (or nothing). Up to 32 grants may follow the groups, in the form of
--   engine/_grants.py
--
-- Result: { more, the names of messages whose lock was lost }; and with grants an empty list and the answers, as in
--   grant.lua
-- Refusals: call
-- Facts: use
-- @use apply_release lock_groups settle_messages
local list, after = lock_groups(ARGV, 7, 2, false, true)
return settle_messages(p, ARGV, list, after, apply_release, 'f')
