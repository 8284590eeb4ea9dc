#!lua
-- Runs the operations of a transaction, over partitions of one slot: all of them, or none. First each operation is
-- checked against the stored data. Only if no check refuses are the operations applied, in their order. Every message
-- of a settlement must still be locked by its token. A message that duplicate detection drops does not refuse the
-- transaction; the result names it. If an operation is refused, its place comes before the detail of the refusal: `#2`.
-- If another participant than the first is refused, its place comes before the detail: `@2`.
--
-- A partition that takes part may also be a subscription that gets copies of published messages. Both then share one
-- table of changes. So a transaction can complete a message of a subscription and publish a copy to it.
--
-- KEYS[1-33] partition   the first participant, in the order of includes/calls/begin.lua
-- KEYS[34...] others     the keys of the other participants, 33 for each; then the keys of the subscriptions that
--   messages are published to, as in publish.lua, for one operation after the other
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    others      for each other participant its incarnation and its version, separated by blanks
-- ARGV[8...] operations  each operation is the place of its participant, counted from 1, then the name of the
--   operation, the number of its arguments, and these arguments. They are the arguments that the script of this name
--   has after `call`. The operations are send, publish, complete, abandon, defer, dead_letter and set_state. Three more
--   have no script of their own: once (see check_once.lua), transfer (see check_transfer.lua) and withdraw (see
--   check_withdraw.lua)
--
-- Result: { more, for each operation its result as text }. The result of send and of publish is the first number, the
--   places, counted from 0, of the messages that were dropped, and the numbers of scheduled messages as runs, separated
--   by semicolons. The result of once is the number of other keys that were forgotten too early. The other operations
--   have an empty result.
-- Refusals: call, DISABLED (sending is disabled), TOOLARGE (a message is too large; the detail is its index, counted
--   from 0), QUOTA (an entity is full; the detail gives its bytes and its quota), DUE (an entity is full, but due work
--   had to be done first), SESSIONS (a message has no session, or the entity has none), TARGET (a subscription does not
--   exist here, or is being deleted; the detail is its place), FENCED (another client has the role now), LOST (the
--   token does not hold the lock on the session now), UNLOCKED (some messages are not locked by their tokens now; the
--   detail is their names), DEAD (a message is a dead letter already; the detail is its name), KNOWN (a key of `once`
--   is known already; the detail is its index, counted from 0), ABSENT (some messages to withdraw are not there as
--   named, or a caller holds them; the detail is their names)
-- @use key_count
-- @use advance answer_repetition apply_operation begin check_operation finish finish_targets open_participants refuse
-- @use refuse_part split_words whole_number
local p, refusal = begin(KEYS, ARGV, 'transact', 7, true)
if not p then
  return refusal
end
local results = { 0 }
if p.repeated then
  for text in string.gmatch(p.repeated, '([^|]*)|') do
    results[#results + 1] = text
  end
  return answer_repetition(p, results)
end
local participants, count = open_participants(p, split_words(ARGV[7]))
if not participants then
  return count
end

local operations, at, from, pending, moving = {}, 8, KEY_COUNT * count + 1, {}, false
while at <= #ARGV do
  local place, name = whole_number(ARGV[at], 1, count), ARGV[at + 1]
  local size = whole_number(ARGV[at + 2], 1, #ARGV - at - 2)
  if not place or not size or #operations == 100 then
    return refuse('BADCALL', 'operations')
  end
  local of, argv = participants[place], {}
  for i = 1, size do
    argv[i] = ARGV[at + 2 + i]
  end
  of.seen, of.stated, of.pending = of.seen or {}, of.stated or {}, pending[of.store]
  local plan, last = check_operation(of, name, argv, from, participants)
  if not plan then
    return refuse_part('#', #operations + 1, last)
  end
  from, moving = last, moving or name == 'withdraw'
  pending[of.store] = (of.pending or 0) + (plan.growth or plan.bytes or plan.incoming and plan.incoming.bytes or 0)
  operations[#operations + 1] = { of = of, name = name, argv = argv, plan = plan }
  at = at + 3 + size
end
if #operations == 0 or from ~= #KEYS + 1 then
  return refuse('BADCALL', 'targets')
end

for place = 1, count do
  participants[place].upkeep = moving
  participants[place].room = math.floor(2097152 / count)
  advance(participants[place], math.ceil(100 / count)) -- all participants together do the share of one call
end
for i = 1, #operations do
  local operation = operations[i]
  results[i + 1] = apply_operation(operation.of, operation.name, operation.argv, operation.plan)
end
for place = 1, count do
  participants[participants[place].state] = nil
end
local others = {}
for key, target in pairs(participants) do
  if type(key) == 'string' then
    others[#others + 1] = target
  end
end
finish_targets(others)
for place = count, 1, -1 do
  finish(participants[place], place == 1 and table.concat(results, '|', 2) .. '|' or '')
  results[1] = math.max(results[1], participants[place].more)
end
return results
