#!lua flags=no-writes
-- Returns the ready messages of the main side in a range of numbers, in the order of their numbers, whatever their
-- levels. The script does no due work, and shows a message that has expired as long as it is stored.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    birth       of the partition, as its plan told it
-- ARGV[8]    after       the number after which the range begins
-- ARGV[9]    upto        the last number of the range
-- ARGV[10]   wanted      the largest number of messages
-- ARGV[11]   room        the largest number of bytes, changed properties included; the first message may exceed it
-- ARGV[12]   pinned      1 if the range must be pinned, so that no message of it can be missing; otherwise 0
--
-- Result: { more, names, records, extras }. If `more` is 1, the range has more messages: make the call again, after the
--   last one. `extras` has what delivery_extras adds for some of them.
-- Refusals: call, LOSS (the range is not pinned in this partition: `birth` if the partition was made anew, `rollback`
--   if the pin ends earlier, `older` if a part of the range is committed; then the plan, the floor and the end that are
--   stored)
-- Facts: repeatable, laneless
-- @use band count_records_that_fit delivery_extras parse_pin read_entries read_records ready_messages record_of
-- @use ready_levels refuse whole_number
local after, upto = whole_number(ARGV[8], 0, BAND - 1), whole_number(ARGV[9], 0, BAND - 1)
local wanted, room = whole_number(ARGV[10], 1, 1000), whole_number(ARGV[11], 1, 1073741824)
if not after or not upto or not wanted or not room or ARGV[12] ~= '0' and ARGV[12] ~= '1'
  or not string.find(ARGV[7], '^%S+$') then
  return refuse('BADCALL', 'read_range')
end
local found = redis.call('HMGET', p.state, 'pin', 'birth')
local pin, loss = parse_pin(found[1]), nil
if found[2] ~= ARGV[7] then
  loss = 'birth'
elseif ARGV[12] == '1' and upto > after then
  loss = upto > pin.last and 'rollback' or after < pin.floor and 'older'
end
if loss then
  return refuse('LOSS', string.format('%s %.0f %.0f %.0f', loss, pin.plan, pin.floor, pin.upto))
end

local names, last = ready_messages(p, after, upto, wanted)
local _, beyond = ready_levels(p, last, upto)
local entries, numbers, records, extras = read_entries(p, names, room), {}, {}, {}
local plain = true
for i = 1, #entries do
  numbers[i], plain = record_of(names[i], entries[i]), plain and not entries[i]
end
local fit = #numbers > 0 and count_records_that_fit(p, numbers, room, entries) or 0
if fit > 0 then
  records = read_records(p.keys, fit == #numbers and numbers or { unpack(numbers, 1, fit) }, nil, plain)
end
for i = 1, fit do
  if entries[i] then
    delivery_extras(extras, i, entries[i])
  end
end
return { (fit < #names or beyond > 0) and 1 or 0, { unpack(names, 1, fit) }, records, extras }
