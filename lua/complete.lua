#!lua flags=allow-oom
-- Completes locked messages: they are deleted for good.
--
-- KEYS[1-36] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and the names of these messages
--
-- Result: { more, the names of messages whose lock was lost }
-- Refusals: call
-- Facts: use
-- @use advance answer_repetition apply_complete begin finish held_messages lock_groups refuse split_words
local p, refusal = begin(KEYS, ARGV, 'complete', 6, true)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { 0, split_words(p.repeated) })
end
local list = lock_groups(ARGV, 7, 1)
if not list then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local lost = {}
apply_complete(p, held_messages(p, list, {}, lost))
finish(p, table.concat(lost, ' '))
return { p.more, lost }
