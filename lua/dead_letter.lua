#!lua flags=allow-oom
-- Moves locked messages to the dead-letter queue. Messages that are already there do not change.
--
-- KEYS[1-36] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name and its changed properties (with reason and description)
--
-- Result: { more, the names of messages whose lock was lost, the names of messages that were dead letters already }
-- Refusals: call
-- Facts: use
-- @use advance answer_repetition apply_dead_letter begin finish held_messages lock_groups refuse split_words
local p, refusal = begin(KEYS, ARGV, 'dead_letter', 6, true)
if not p then
  return refusal
end
if p.repeated then
  local lost, unfit = string.match(p.repeated, '^(.*)|(.*)$')
  return answer_repetition(p, { 0, split_words(lost), split_words(unfit) })
end
local list = lock_groups(ARGV, 7, 2)
if not list then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local lost = {}
local unfit = apply_dead_letter(p, ARGV, held_messages(p, list, {}, lost))
finish(p, table.concat(lost, ' ') .. '|' .. table.concat(unfit, ' '))
return { p.more, lost, unfit }
