#!lua flags=allow-oom
-- Forgets partitions that have moved messages to this one. They must have been destroyed. If one of them was known
-- here, the door changes: see take.lua.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    door        a random text that no call has used before
-- ARGV[8...] origins     each is the id of an entity, a colon, and the birth of its partition
--
-- Result: { more, how many of them were known here }
-- Refusals: call
-- Facts: repeatable, laneless
-- @use advance finish parse_stamp refuse
local fields = {}
for i = 8, #ARGV do
  if not string.find(ARGV[i], '^[%w_.-]+:[%w_-]+$') or #ARGV[i] > 128 then
    return refuse('BADCALL', 'origins')
  end
  fields[#fields + 1] = 'in:' .. ARGV[i]
end
if not parse_stamp(ARGV[7]) or #fields == 0 or #fields > 1000 then
  return refuse('BADCALL', 'origins')
end

advance(p, 100)
local known = redis.call('HDEL', p.lasting, unpack(fields))
if known > 0 then
  redis.call('HSET', p.lasting, 'door', ARGV[7])
end
finish(p, '')
return { p.more, known }
