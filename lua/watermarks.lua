#!lua flags=no-writes
-- Returns the watermarks whose names begin with a text, in parts. A watermark that is there during all calls is in at
-- least one part. One that is set or removed meanwhile may be in any number of parts.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    prefix      the text with which the names begin; it may be empty
-- ARGV[8]    cursor      the cursor that the last call returned, or 0 for the first part
--
-- Result: { the cursor for the next part, or 0 after the last one, names, values }. Each value has, before a blank, the
--   number of the last message that was sent with the watermark. A part looks at about 1,000 watermarks
-- Refusals: call
-- Facts: repeatable, laneless
-- @use refuse
local prefix, cursor = 'w:' .. ARGV[7], ARGV[8]
if #prefix > 514 or #cursor > 20 or not string.find(cursor, '^%d+$') then
  return refuse('BADCALL', 'watermarks')
end
local part = redis.call('HSCAN', p.lasting, cursor, 'COUNT', 1000)
local names, values = {}, {}
for i = 1, #part[2], 2 do
  if string.sub(part[2][i], 1, #prefix) == prefix then
    names[#names + 1], values[#values + 1] = string.sub(part[2][i], 3), part[2][i + 1]
  end
end
return { part[1], names, values }
