#!lua flags=no-writes
-- Returns the pin of a partition: how far a reservation is.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
--
-- Result: { the birth of the partition, the fence of the latest call of a reservation, or 0; the number of the latest
--   plan, the number up to which messages are committed, the number of the last pinned message, the time of the latest
--   call, the number of ready messages after the last pinned one }
-- Refusals: call
-- Facts: repeatable, laneless
-- @use band parse_pin ready_levels
local found = redis.call('HMGET', p.state, 'pin', 'birth')
local pin = parse_pin(found[1])
local _, left = ready_levels(p, pin.last, BAND - 1)
return { found[2], pin.fence, pin.plan, pin.floor, pin.last, pin.at, left }
