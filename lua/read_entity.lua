#!lua flags=no-writes
-- Reads the record of an entity, and what is counted of its topic.
--
-- KEYS[1-7] registry  in the order of register_namespace.lua
-- ARGV[1] partitions  of the namespace, as the caller knows it
-- ARGV[2] name        in small letters
-- ARGV[3] topic       the name of its topic, if it is a subscription, or else its own
--
-- Result: nothing, or { the record; 1 if the topic's partitions may not have been told the topic's version, 2 if the topic is being
--   deleted, or 0; how many subscriptions, SQL filters and correlation filters the topic has }. SQL filters are all that are no
--   correlation filters, also those that are always true or false; those of subscriptions that are being deleted are counted.
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS
-- @use open_registry parse_entity tally
local n, refusal = open_registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local records = redis.call('HMGET', KEYS[2], ARGV[2], ARGV[3])
if not records[1] then
  return nil
end
local counted = redis.call('HGET', KEYS[7], ARGV[3])
if not records[2] or not counted then
  return { records[1], ARGV[2] ~= ARGV[3] and 2 or 0, 0, 0, 0 }
end
local topic, foreign = parse_entity(records[2])
if not topic then
  return foreign
end
local t, unreadable = tally(counted)
if not t then
  return unreadable
end
local behind = tonumber(t.mark) < tonumber(topic.version) and 1 or 0
-- The places of the rules of a topic begin with its name and this segment, which no name of an entity has.
local rules = redis.call('ZLEXCOUNT', KEYS[6], '[' .. ARGV[3] .. '/subscriptions/', '(' .. ARGV[3] .. '/subscriptions0')
return { records[1], behind, t.subscriptions, math.max(rules - t.correlation, 0), t.correlation }
