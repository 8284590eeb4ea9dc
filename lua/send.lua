#!lua
-- Stores messages. Each message is active immediately, or is scheduled if it names a future time. The messages get
-- consecutive numbers, and the first of these numbers is in the result. A message that duplicate detection drops uses
-- up its number too.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    columns     the fields before each payload: t time to live, l level, i message id, d due time, or nothing
-- ARGV[8...] messages    for each message its columns (empty if the message has no value for a column), then its
--   payload
--
-- Result: { more, the first number, the number of messages that were dropped }
-- Refusals: call, DISABLED (sending is disabled), TOOLARGE (a message is too large; the detail is its index, counted
--   from 0), QUOTA (the entity is full; the detail gives its bytes and its quota), DUE (the entity is full, but due
--   work had to be done first), SESSIONS (a message has no session, but the entity requires one; the detail is its
--   index, counted from 0)
-- Facts: use
-- @use advance answer_repetition apply_send check_send finish number_text
if p.repeated then
  local first, dropped = string.match(p.repeated, '^(%d+) (%d+)$')
  return answer_repetition(p, { 0, tonumber(first), tonumber(dropped) })
end

local incoming, refused = check_send(p, ARGV, 7)
if not incoming then
  return refused
end

advance(p, 100)
local first, dropped = apply_send(p, ARGV, incoming)
finish(p, number_text[first] .. ' ' .. number_text[#dropped])
return { p.more, first, #dropped }
