#!lua flags=no-writes
-- Returns the messages that are scheduled on a topic and are due, earliest first, to the client that will publish them.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    wanted      the largest number of messages
-- ARGV[8]    room        the largest number of bytes; the first message may exceed it
--
-- Result: { 0, names, records, and for each message how far it has come, if it is being spread (see publish.lua), or
--   nothing }
-- Refusals: call
-- Facts: repeatable, laneless
-- @use count_records_that_fit due_message read_many read_records refuse whole_number
local wanted, room = whole_number(ARGV[7], 1, 1000), whole_number(ARGV[8], 1, 1073741824)
if not wanted or not room or not p.topic then
  return refuse('BADCALL', 'ripe')
end
local due = redis.call('ZRANGE', p.due, '-inf', p.now, 'BYSCORE', 'LIMIT', 0, wanted)
if #due == 0 then
  return { 0, {}, {}, {} }
end
local names = {}
for i = 1, #due do
  names[i] = due_message(due[i])
end
names = { unpack(names, 1, count_records_that_fit(p, names, room)) }
local fields = {}
for i = 1, #names do
  fields[i] = '>' .. names[i]
end
local reached = read_many('HMGET', p.entries, fields)
for i = 1, #names do
  reached[i] = reached[i] or ''
end
return { 0, names, read_records(p.keys, names), reached }
