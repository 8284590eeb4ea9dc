#!lua flags=no-writes
-- Tells what an operator wants to know beside the counts: who waits, how the sessions stand, and how old the work is.
-- It shows the partition as it is stored, without the effects of due work.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
--
-- Result: { the receivers that wait for messages or sessions (one that was killed counts for up to five minutes), the
--   sessions that wait for a receiver, the sessions that are locked, the time when the oldest message that can be
--   received was enqueued, or an empty text }
-- Refusals: call
-- Facts: repeatable, laneless
-- @use band levels lost_record ranks read_many read_records record_of turns
local waiting = 0
if p.run_id == p.old_run_id then -- another server process ends all grants
  waiting = waiting + redis.call('ZCOUNT', p.grants, RANKS.source, 2 * RANKS.source - 1)
end

local free, locked = 0, 0
if p.index then
  free = redis.call('ZCOUNT', p.turns, TURNS.free, TURNS.locked - 1)
  locked = redis.call('ZCOUNT', p.turns, TURNS.locked, TURNS.blocked - 1)
end

local names, oldest = {}, ''
for level = 0, LEVELS - 1 do
  names[#names + 1] = redis.call('ZRANGE', p.order, level * BAND, (level + 1) * BAND - 1, 'BYSCORE', 'LIMIT', 0, 1)[1]
end
if #names > 0 then
  local entries = read_many('HMGET', p.entries, names)
  for i = 1, #names do
    names[i] = record_of(names[i], entries[i])
  end
  for _, record in ipairs(read_records(p.keys, names)) do
    local enqueued = string.sub(record, 3, 15)
    if record ~= LOST_RECORD and (oldest == '' or enqueued < oldest) then
      oldest = enqueued
    end
  end
end
return { waiting, free, locked, oldest }
