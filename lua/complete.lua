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
-- @use advance apply_complete end_settlement held_messages lock_groups parse_grants refuse split_words
local list, after = lock_groups(ARGV, 7, 1, false, true)
local grants = list and parse_grants(p, ARGV, after)
if not grants then
  return refuse('BADCALL', 'groups')
end

local lost = p.repeated and split_words(p.repeated) or {}
if not p.repeated then
  advance(p, 100)
  apply_complete(p, held_messages(p, list, {}, lost))
end
return end_settlement(p, table.concat(lost, ' '), { 0, lost }, grants, false)
