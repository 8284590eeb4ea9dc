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
-- @use advance apply_dead_letter end_settlement held_messages lock_groups parse_grants refuse split_words
local list, after = lock_groups(ARGV, 7, 2, false, true)
local grants = list and parse_grants(p, ARGV, after)
if not grants then
  return refuse('BADCALL', 'groups')
end

local lost, unfit = string.match(p.repeated or '|', '^(.*)|(.*)$')
lost, unfit = split_words(lost), split_words(unfit)
if not p.repeated then
  advance(p, 100)
  unfit = apply_dead_letter(p, ARGV, held_messages(p, list, {}, lost))
end
return end_settlement(p, table.concat(lost, ' ') .. '|' .. table.concat(unfit, ' '), { 0, lost, unfit }, grants, false)
