#!lua flags=allow-oom
-- Writes that the partition is in use, for a use that changes nothing else in it: a peek, or a new rule. The time of
-- the last use is written at most once a minute.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
--
-- Result: { 1 if the call wrote the time, or 0 if a call of the last minute had written it }
-- Refusals: call
-- Facts: use, repeatable, laneless
-- @use finish
if p.now - p.used < 60000 then
  return { 0 }
end
finish(p, '')
return { 1 }
