#!lua flags=allow-oom
-- Plans the next range of a reserved partition: removes the messages of the committed range, then chooses the messages
-- up to a number as the next range, and pins them. A pinned message stays until its range is committed: it does not
-- expire and is not purged. Only a call that finds no committed message and no due work left makes a new plan. A call
-- that names the range before the latest plan gets this plan again, unchanged. So the call may be repeated.
--
-- A range never includes the number of a message that is locked, delayed or frozen, because this message may become
-- ready again.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    fence       of the reservation
-- ARGV[8]    birth       of the partition, as the committed plan told it. Nothing in the first call of a reader that
--   has committed nothing: it asks for the place where to begin
-- ARGV[9]    plan        the number of the committed plan, or nothing
-- ARGV[10]   committed   the number of the last committed message, or nothing
-- ARGV[11]   rows        the largest number of messages in the range; 0 to remove committed messages only
-- ARGV[12]   room        about the largest number of bytes in the range; it has at least one message
-- ARGV[13]   accept      1 to go on after a loss
--
-- Result: { more, the birth of the partition, the number of the plan, the number after which it begins, the number of
--   its last message, the number of its messages, about their bytes, the number of ready messages after it, the time
--   when the first of those was enqueued, or 0 }. If `more` is 1, the plan is not ready: make the call again. Without a
--   new plan the two numbers are the same. A reader that asks where to begin gets a plan that it may name as committed
-- Refusals: call, OVERTAKEN (another client with a higher fence has taken over), LOSS (the committed plan is not that
--   of this partition: `birth` if the partition was made anew, `rollback` if the partition has lost the plan, `older`
--   if a later plan was committed; then the plan, the floor and the end that are stored)
-- Facts: use, repeatable, laneless
-- @use advance band choose_end finish flush grow_pin message_sizes open_pin pin_text read_many ready_levels
-- @use ready_messages record_key record_of refuse remove_committed whole_number
local begins = ARGV[8] == '' and ARGV[9] == '' and ARGV[10] == ''
local rows, room = whole_number(ARGV[11], 0, 999999999), whole_number(ARGV[12], 1, 999999999999999)
local plan, committed = whole_number(ARGV[9], 0, 999999999999999), whole_number(ARGV[10], 0, BAND - 1)
if not rows or not room or ARGV[13] ~= '0' and ARGV[13] ~= '1'
  or not begins and (not plan or not committed or not string.find(ARGV[8], '^%S+$')) then
  return refuse('BADCALL', 'plan')
end
local pin, unfit = open_pin(p, ARGV[7])
if not pin then
  return unfit
end

local outstanding = pin.upto > pin.floor
if begins then
  plan, committed = outstanding and pin.plan - 1 or pin.plan, pin.floor
end
local loss
if ARGV[8] ~= pin.birth and not begins then
  loss = 'birth'
elseif plan > pin.plan or committed > pin.upto then
  loss = 'rollback'
elseif committed < pin.floor then
  loss = 'older'
elseif committed == pin.floor then
  loss = outstanding and plan == pin.plan and 'older'
elseif plan < pin.plan or committed < pin.upto or pin.last < pin.upto then
  loss = 'rollback'
end
if loss and ARGV[13] == '0' then
  return refuse('LOSS', string.format('%s %.0f %.0f %.0f', loss, pin.plan, pin.floor, pin.upto))
end
-- After a loss, committed messages may be above the pin. They are pinned first, so that none of them expires.
local catches_up = loss ~= 'birth' and committed > pin.last
if catches_up then
  pin.upto = math.max(pin.upto, committed)
elseif loss ~= 'birth' and committed > pin.floor then
  pin.floor = committed
end
outstanding = pin.upto > pin.floor
if loss and loss ~= 'birth' then
  pin.plan = math.max(pin.plan, outstanding and not catches_up and plan + 1 or plan)
end
if catches_up then
  grow_pin(p, pin)
  flush(p)
end
-- Write the pin before the due work, which leaves the pinned messages alone.
redis.call('HSET', p.state, 'pin', pin_text(pin))

local _, removable = ready_levels(p, 0, pin.floor)
local removes = removable > 0 and not begins
advance(p, (begins or removes) and 20 or 250)
local more = removes or catches_up
if removes then
  remove_committed(p, pin)
elseif not begins and not catches_up then
  if not outstanding and rows > 0 then
    more = p.more == 1
    pin.upto = more and pin.floor or choose_end(p, pin, rows, room)
    if pin.upto > pin.floor then
      outstanding, pin.plan = true, pin.plan + 1
    end
  end
  if pin.last < pin.upto then
    grow_pin(p, pin)
    more = pin.last < pin.upto
  end
end
p.changed.pin = pin_text(pin)
if more then
  finish(p, '')
  return { 1, pin.birth, pin.plan, pin.floor, pin.last, 0, 0, 0, 0 }
end

local _, left = ready_levels(p, pin.last, BAND - 1)
local oldest, last = 0, begins and pin.floor or pin.last
if left > 0 then
  local name = ready_messages(p, pin.last, BAND - 1, 1)[1]
  local number = record_of(name, redis.call('HGET', p.entries, name))
  local key = record_key(p.keys, tonumber(number))
  if redis.call('HSTRLEN', key, number) <= 1048576 then
    oldest = tonumber(string.sub(redis.call('HGET', key, number), 3, 15))
  end
end
local _, count = ready_levels(p, pin.floor, last)
local bytes = 0
if count > 0 then
  local some = ready_messages(p, pin.floor, last, 500)
  local _, sum = message_sizes(p, some, read_many('HMGET', p.entries, some), math.huge)
  bytes = math.ceil(sum * count / #some)
end
finish(p, '')
return { 0, pin.birth, begins and plan or pin.plan, pin.floor, last, count, bytes, left, oldest }
