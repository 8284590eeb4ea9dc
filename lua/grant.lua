#!lua flags=allow-oom
-- Grants credit: each receiver says how many messages the partition may still give to it, and gets messages that are
-- ready in the reply. What is left of the credit stays, and later calls give messages to the receiver in pushes. All
-- limits count from the receiver's first grant, so a repeated grant gives nothing twice: it shows the messages again
-- that the receiver may not have seen.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] grants      1 to 32 texts in the form of engine/_grants.py
--
-- Result: { more, the answers }. The answers are a text with the first eight characters of the run id and the clock of
--   the server, and then a list for each grant: a text with the answer as take_grant says it, the prefix, the last gift
--   before the pushes of this call, the limit that is left, letters (a the gifts are all that the receiver may not have
--   seen, m more is ready, k it is the task of this receiver to call when something is due), the ms until the
--   receiver must call or nothing, and the refusal or nothing; and then the gifts. A gift has the words of
--   choose_gift, the names, the records, and what delivery_extras adds for some messages.
-- Refusals: call
-- Facts: use, repeatable, laneless
-- @use advance finish parse_grants refuse take_grants
local grants = parse_grants(p, ARGV, 7)
if not grants or #grants == 0 then
  return refuse('BADCALL', 'grants')
end

p.upkeep = true -- a receiver that wants nothing any more does not use the entity
for i = 1, #grants do
  p.upkeep = p.upkeep and grants[i].limit <= grants[i].messages and not grants[i].announced
end
advance(p, 100)
local answers = take_grants(p, grants, false)
finish(p, '')
return { p.more, answers }
