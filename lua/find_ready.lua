#!lua flags=no-writes
-- Returns whether a partition may have something for a receiver: a message or a free session is ready, or work is due
-- that may make one ready. It costs two short reads, and does nothing of what is due. The script reads no settings, so
-- a partition that is not here, or gives nothing to receivers, may have something too: a grant learns why not.
--
-- KEYS[1-3] partition   its keys `state`, `order` and `turns`
-- ARGV[1]   source      nothing, d or t for a side, or next for free sessions
-- ARGV[2]   now         the time for a partition with a test clock, or nothing
--
-- Result: 1 if the partition may have something, otherwise 0
-- Refusals: BADCALL
-- Facts: repeatable
-- @use never parse_marks refuse server_time side_named turns whole_number
local told = ARGV[2] ~= '' and whole_number(ARGV[2], 0, NEVER - 1)
local source = string.match(ARGV[1], '^[dt]?$') or string.match(ARGV[1], '^next$')
if #ARGV ~= 2 or #KEYS ~= 3 or told == nil or not source then
  return refuse('BADCALL', 'source')
end
local layout, marks = unpack(redis.call('HMGET', KEYS[1], 'layout', 'marks'))
if layout ~= '2' or not marks then
  return 1
end
local now, m = told or tonumber(server_time()), parse_marks[marks]
if m.next_due <= now or m.head <= now or m.next_lock - m.offset <= now then
  return 1
elseif source == 'next' then
  return redis.call('ZCOUNT', KEYS[3], TURNS.free, TURNS.locked - 1) > 0 and 1 or 0
end
local side = side_named[source]
return redis.call('ZCOUNT', KEYS[2], side.from, side.to) > 0 and 1 or 0
