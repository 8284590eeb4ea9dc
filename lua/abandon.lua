#!lua flags=allow-oom
-- Releases locked messages, so that they can be received again. Each message returns to its own place, immediately or
-- after a delay, unless it has reached the delivery limit or has expired. A delay holds back the whole session of the
-- message, because a session keeps its order. Each delivery counts as failed, unless the client releases the messages
-- unread or was interrupted. The next delivery of a message reports that the client was interrupted; so does the one
-- after it, if the message was then released unread.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    counted     1 if the deliveries count as failed, 0 if the client releases the messages unread, or i if the
--   client was interrupted
-- ARGV[8...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name, its changed properties (or nothing) and a delay in ms. Up to 32 grants may follow the
--   groups, in the form of engine/_grants.py
--
-- Result: { more, the names of messages whose lock was lost }; and with grants an empty list and the answers, as in
--   grant.lua
-- Refusals: call
-- Facts: use
-- @use advance apply_release check_abandon end_settlement held_messages parse_grants refuse split_words
local list, after = check_abandon(ARGV, 7, true)
if not list then
  return after
end
local grants = parse_grants(p, ARGV, after)
if not grants then
  return refuse('BADCALL', 'grants')
end

local lost = p.repeated and split_words(p.repeated) or {}
if not p.repeated then
  advance(p, 100)
  apply_release(p, ARGV, held_messages(p, list, {}, lost), ARGV[7])
end
return end_settlement(p, table.concat(lost, ' '), { 0, lost }, grants, true)
