#!lua flags=allow-oom
-- Defers locked messages. They keep their numbers, and can then be received by number only. Deferring counts as a
-- failed delivery, so a message at the delivery limit goes to the dead-letter queue instead. The reply does not report
-- this. The delivery count of a dead letter does not change.
--
-- KEYS[1-36] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name and its changed properties (or nothing)
--
-- Result: { more, the names of messages whose lock was lost }
-- Refusals: call
-- Facts: use
-- @use advance answer_repetition apply_release begin finish held_messages lock_groups refuse split_words
local p, refusal = begin(KEYS, ARGV, 'defer', 6, true)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { 0, split_words(p.repeated) })
end
local list = lock_groups(ARGV, 7, 2)
if not list then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local lost = {}
apply_release(p, ARGV, held_messages(p, list, {}, lost), 'f')
finish(p, table.concat(lost, ' '))
return { p.more, lost }
