#!lua
-- Runs transactions over partitions of one slot, one after the other. Each transaction is a list of operations: all of
-- them happen, or none. First each operation of a transaction is checked against the stored data. Only if no check
-- refuses are the operations applied, in their order. The next transaction sees what the transactions before it have
-- changed. Every message of a settlement must still be locked by its token. A message that duplicate detection drops
-- does not refuse the transaction; the result names it. If an operation is refused, its place comes before the detail
-- of the refusal: `#2`. If another participant than the first is refused, the place of the first operation on it comes
-- before the detail.
--
-- If the call has one transaction, a refusal of the transaction refuses the call. If the call has several, the result
-- has the refusal in place of the results of the refused transaction, and the other transactions happen.
--
-- A partition that takes part may also be a subscription that gets copies of published messages. Both then share one
-- table of changes. So a transaction can complete a message of a subscription and publish a copy to it.
--
-- KEYS[1-35] partition   the first participant, in the order of includes/calls/begin.lua
-- KEYS[36...] others     the keys of the other participants, 35 for each; then the keys of the subscriptions that
--   messages are published to, as in publish.lua, for one operation after the other
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    others      for each other participant its incarnation and its version, separated by blanks
-- ARGV[8...] transactions  each transaction is the number of its operations, the number of the keys of the
--   subscriptions that it publishes to, and the operations. Each operation is the place of its participant, counted
--   from 1, then the name of the operation, the number of its arguments, and these arguments. They are the arguments
--   that the script of this name has after `call`. The operations are send, publish, complete, abandon, defer,
--   dead_letter, renew and set_state. Four more have no script of their own: once (see check_once.lua), advance (see
--   check_advance.lua), transfer (see check_transfer.lua) and withdraw (see check_withdraw.lua). Up to 32 grants to the
--   first participant may follow the transactions, in the form of engine/_grants.py
--
-- Result: { more, for each transaction a text: the result of each operation, with a bar after each; or an exclamation
--   mark and the refusal }. The result of send and of publish is the first number, the places, counted from 0, of the
--   messages that were dropped, and the numbers of scheduled messages as runs, separated by semicolons. The result of
--   once is the number of other keys that were forgotten too early. The result of advance is an equals sign and the
--   number that is stored with the watermark. The result of renew is a tilde and the lock duration, and the names of
--   the messages that have a lease of their own. The other operations have an empty result. With grants, the answers
--   follow, as in grant.lua
-- Refusals: call, DISABLED (sending is disabled), TOOLARGE (a message is too large; the detail is its index, counted
--   from 0), QUOTA (an entity is full; the detail gives its bytes and its quota), DUE (an entity is full, but due work
--   had to be done first), SESSIONS (a message has no session, or the entity has none), TARGET (a subscription does not
--   exist here, or is being deleted; the detail is its place), FENCED (another client has the role now), LOST (the
--   token does not hold the lock on the session now), UNLOCKED (some messages are not locked by their tokens now; the
--   detail is their names), DEAD (a message is a dead letter already; the detail is its name), KNOWN (a key of `once`
--   is known already; the detail is its index, counted from 0), CHANGED (a watermark has another value; the detail is
--   the number and the value that are stored, or a hyphen), FULL (the partition has too many watermarks; the detail is
--   the most), ABSENT (some messages to withdraw are not there as named, or a caller holds them; the detail is their
--   names)
-- Facts: use, at_limit
-- @use advance advance_participants answer_repetition apply_transaction check_transaction finish finish_targets
-- @use open_participants parse_grants parse_transactions refuse split_words take_grants
local results, others = { 0 }, split_words(ARGV[7])
local participants, count = {}, 1 + #others / 2
if not p.repeated then
  participants, count = open_participants(p, KEYS, ARGV, others, 8)
end
if not participants then
  return count
end
local transactions, after, gave_back = parse_transactions(participants, count, KEYS, ARGV)
local grants = transactions and parse_grants(p, ARGV, after)
if not grants then
  return transactions and refuse('BADCALL', 'grants') or after
end
if p.repeated then
  for text in string.gmatch(p.repeated, '([^\n]*)\n') do
    results[#results + 1] = text
  end
  if #grants == 0 then
    return answer_repetition(p, results)
  end
  advance(p, 100)
  results[#results + 1] = take_grants(p, grants, gave_back)
  finish(p, p.repeated)
  results[1] = p.more
  return results
end

local targets = {}
for i = 1, #transactions do
  local refused = check_transaction(transactions[i], participants, KEYS)
  if not refused then
    advance_participants(participants, count) -- due work comes before the first transaction that happens
    results[i + 1] = apply_transaction(transactions[i], targets)
  elseif #transactions == 1 or not p.advanced and string.sub(refused.err, 1, 4) == 'DUE ' then
    return refused
  else
    results[i + 1] = '!' .. refused.err
  end
end
advance_participants(participants, count)
finish_targets(targets)
local answers = #grants > 0 and take_grants(p, grants, gave_back) or nil
for place = count, 1, -1 do
  local p = participants[place]
  if not p.refused then
    finish(p, place == 1 and table.concat(results, '\n', 2) .. '\n' or '')
    results[1] = math.max(results[1], p.more)
  end
end
results[#results + 1] = answers
return results
