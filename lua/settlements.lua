#!lua flags=no-writes
-- Returns records of the stream of settlements, in order. write_settlements.lua explains them. If the caller's place is
-- after the last record, it belongs to another partition, or to this one before it lost data. Then the script
-- returns the first records.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    after       the id of the last record that the caller has seen, or 0
-- ARGV[8]    wanted      the largest number of records
--
-- Result: { the id of the last record, the number of leaps, records }. A record is { its id, its time, its notes, the
--   number of leaps before it }, all as text. There may be fewer records than wanted, because the reply has at most
--   about 1 MB
-- Refusals: call
-- Facts: repeatable, laneless
-- @use epoch_leap refuse whole_number
local after, wanted = whole_number(ARGV[7], 0, 999999999999999), whole_number(ARGV[8], 1, 1000)
if not after or not wanted then
  return refuse('BADCALL', 'settlements')
end
local counted = redis.call('HMGET', p.state, 'settlements', 'leaps')
local last = counted[1] + counted[2] * EPOCH_LEAP
local records, room, from = {}, 1048576, after > last and '-' or string.format('(%.0f-0', after)
while #records < wanted and room > 0 do
  local some = redis.call('XRANGE', p.keys[32], from, '+', 'COUNT', math.min(50, wanted - #records))
  for i = 1, #some do
    local fields = some[i][2]
    records[#records + 1] = { string.match(some[i][1], '^%d+'), fields[2], fields[4], fields[6] }
    room = room - #fields[4]
    from = '(' .. some[i][1]
  end
  if #some < 50 then
    break
  end
end
return { last, tonumber(counted[2]), records }
