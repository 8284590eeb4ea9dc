#!lua flags=allow-oom
-- Moves locked messages to the dead-letter queue. Messages that are already there do not change.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name and its changed properties (with reason and description). Up to 32 grants may follow the groups,
--   in the form of engine/_grants.py
--
-- Result: { more, the names of messages whose lock was lost, the names of messages that were dead letters already };
--   and with grants the answers, as in grant.lua
-- Refusals: call
-- Facts: use
-- @use apply_dead_letter lock_groups settle_messages
local list, after = lock_groups(ARGV, 7, 2, false, true)
return settle_messages(p, ARGV, list, after, apply_dead_letter)
