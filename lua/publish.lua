#!lua
-- Stores messages of a topic for the subscriptions that they match. A message is stored once, no matter how many copies
-- of it there are. A message that matches no subscription is not stored, but its number is used up. A message that
-- names a future time waits on the topic. When the time has come, a call publishes the message by its number, with the
-- routes that are valid then. If the message is no longer there, or its record is lost, it counts as dropped.
-- A message with a due time also waits if the sender has not judged it by the rules, even if the due time has passed.
-- If it has passed, the message is due at 1, like one that is spread (below).
--
-- A message with very many copies is *spread*: several calls make its copies, so that none of them takes too long. Its
-- sender does not judge it, and gives 1 as its due time. A client with the routing role then makes the calls, each for
-- the subscriptions between two incarnations. The first of them gives the message its number and its time. The message
-- waits until the last of them, due at 0, with its record and an entry that says how far it has come. As long as a
-- message waits that is due at 0 or 1, no later message of the topic overtakes it: each of them waits too.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- KEYS[36...] targets    for each subscription its keys state, order, entries, due, words, grants; and also
--   sessions, turns, states if a plus follows its incarnation
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    columns     the fields before each payload: r route, c changes, t time to live, l level, i message id, d
--   due time, o the number under which the message was scheduled; nothing if there are no columns
-- ARGV[8]    incarnations of the subscriptions, as one text separated by blanks; a plus follows if the subscription
--   requires sessions
-- ARGV[9]    fence       of the holder of the routing role, or nothing
-- ARGV[10]   bounds      of a spread, for messages that wait: an incarnation, a colon, and another one. The call makes
--   the copies for all subscriptions whose incarnations come after the first and not after the second one. The first
--   one is left out in the first call for a message, and the second one in the last. Nothing if the call makes all
--   copies. A message that has come less far, or farther, is dropped from the call
-- ARGV[11...] messages   for each message its columns, then its payload. A route is a list of copies separated by
--   blanks; it is a dash if the message waits because it was not judged. A copy is the place of a subscription, counted
--   from 1. If the copy has changed properties, `a` and their length follow, and then `t` and a time to live if the
--   copy has one of its own. If the copy goes to the dead-letter queue because a rule failed, `e` and a length follow.
--   The column c holds the changes of all copies, one after the other
--
-- Result: { more, the first number, the number of dropped messages, the numbers of scheduled messages as runs }
-- Refusals: call, DISABLED (sending is disabled), TOOLARGE (a message is too large; the detail is its index, counted
--   from 0), QUOTA (the entity is full; the detail gives its bytes and its quota), DUE (the entity is full, but due
--   work had to be done first), TARGET (a subscription does not exist here, or is being deleted; the detail is its
--   place), FENCED (another client has the role now)
-- Facts: use, at_limit
-- @use key_count advance answer_repetition apply_publish check_publish finish finish_targets refuse
if p.repeated then
  local first, dropped, numbers = string.match(p.repeated, '^(%d+) (%d+) ?(.*)$')
  return answer_repetition(p, { 0, tonumber(first), tonumber(dropped), numbers })
end
local plan, last = check_publish(p, KEYS, ARGV, 7, KEY_COUNT + 1)
if not plan then
  return last
end
if last ~= #KEYS + 1 then
  return refuse('BADCALL', 'targets')
end

advance(p, 100)
local first, dropped, numbers = apply_publish(p, ARGV, plan)
finish_targets(plan.subscriptions)
finish(p, string.format('%.0f %d %s', first, #dropped, numbers))
return { p.more, first, #dropped, numbers }
