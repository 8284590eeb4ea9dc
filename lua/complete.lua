#!lua flags=allow-oom
-- Completes locked messages: they are deleted for good.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and the names of these messages. Up
--   to 32 grants may follow the groups, in the form of engine/_grants.py
--
-- Result: { more, the names of messages whose lock was lost }; and with grants an empty list and the answers, as in
--   grant.lua
-- Refusals: call
-- Facts: use
-- @use apply_complete lock_groups settle_messages
local list, after = lock_groups(ARGV, 7, 1, false, true)
return settle_messages(p, ARGV, list, after, apply_complete)
