#!lua flags=no-writes
-- Reads records of a topic's subscriptions in the order of their names. It reads at most `limit` records, and stops
-- earlier if the next record would not fit into the reply. Records that cannot be read are also returned.
--
-- KEYS[1-10] bucket   in the order of begin_bucket.lua
-- ARGV[1] slots       the namespace's number of slots, as the caller knows it
-- ARGV[2] topic       the topic's name in lower case
-- ARGV[3] after       the path in lower case after which the list starts; no subscription need have this path
-- ARGV[4] before      the path before which the list ends; no subscription need have this path
-- ARGV[5] limit       the largest number of records
--
-- Result: { incarnation and version of the topic, or nothing if it is being deleted or its record cannot be read; 1 if
--   there may be more subscriptions; for each subscription its path in lower case, its record, which is empty if there
--   is none, and the mark of its rules, which is empty if the subscription is being deleted }
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such topic), BADCALL
-- Facts: repeatable
-- @use open_bucket page parse_entity refuse rules_stamp tally whole_number
local limit = whole_number(ARGV[5], 1, 1000)
if not limit then
  return refuse('BADCALL', 'limit')
end
local n, refusal = open_bucket(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], ARGV[2])
if not there and not redis.call('ZSCORE', KEYS[3], ARGV[2]) then
  return refuse('GONE', ARGV[2])
end
local topic = parse_entity(there, ARGV[2])
local names, records, more = page(KEYS[4], KEYS[2], ARGV[3], ARGV[4], limit)
local reply = { topic and rules_stamp(KEYS[7], ARGV[2], topic) or '', more and 1 or 0 }
local counted = #names == 0 and {} or redis.call('HMGET', KEYS[7], unpack(names))
for i = 1, #names do
  local mark = ''
  if counted[i] then
    local t = tally(counted[i], names[i])
    mark = t and t.mark or counted[i]
  end
  reply[#reply + 1] = names[i]
  reply[#reply + 1] = records[i]
  reply[#reply + 1] = mark
end
return reply
