#!lua flags=allow-oom
-- Does what is due, in a larger share than the other calls do on their way. A repetition tells anew in how many ms something is.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
--
-- Result: { more, in how many ms something is due next, or 0 }
-- Refusals: call
-- @use advance answer_repetition begin finish next_due
local p, refusal = begin(KEYS, ARGV, 'due', 6, false)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { tonumber(p.repeated), next_due(p) })
end
advance(p, 500)
local due = next_due(p)
finish(p, p.more)
return { p.more, due }
