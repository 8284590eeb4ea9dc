#!lua flags=no-writes
-- Reads the rules of a topic's subscriptions between two places, in the order of places. It reads at most `limit`
-- rules, and stops earlier if the next rule would not fit into the reply.
--
-- KEYS[1-10] bucket   in the order of begin_bucket.lua
-- ARGV[1] slots       the namespace's number of slots, as the caller knows it
-- ARGV[2] topic       the topic's name in lower case
-- ARGV[3] after       the place after which the list starts; there need not be a rule at this place
-- ARGV[4] before      the place before which the list ends; there need not be a rule at this place
-- ARGV[5] limit       the largest number of rules
--
-- Result: { incarnation and version of the topic, or nothing if it is being deleted or its record cannot be read; 1 if
--   there may be more rules; for each rule its place and its text, which is empty if there is none }
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such topic), BADCALL
-- Facts: repeatable
-- @use open_bucket page parse_entity refuse rules_stamp whole_number
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
local places, rules, more = page(KEYS[6], KEYS[5], ARGV[3], ARGV[4], limit)
local reply = { topic and rules_stamp(KEYS[7], ARGV[2], topic) or '', more and 1 or 0 }
for i = 1, #places do
  reply[#reply + 1] = places[i]
  reply[#reply + 1] = rules[i]
end
return reply
