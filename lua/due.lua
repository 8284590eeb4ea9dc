#!lua flags=allow-oom
-- Does a share of the due work. This share is larger than the one that other calls do before their operation. A
-- repetition does no work, but reads the next due time again.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
--
-- Result: { more, the time in ms until something is due next, or 0 if nothing will be due }
-- Refusals: call
-- Facts: repeatable
-- @use advance answer_repetition finish next_due
if p.repeated then
  return answer_repetition(p, { tonumber(p.repeated), next_due(p) })
end
advance(p, 250)
local due = next_due(p)
finish(p, p.more)
return { p.more, due }
