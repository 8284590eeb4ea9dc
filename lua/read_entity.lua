#!lua flags=no-writes
-- Reads the record of an entity, and the counts of its topic. A record that cannot be read is also returned.
--
-- KEYS[1-10] bucket   in the order of begin_bucket.lua
-- ARGV[1] slots       the namespace's number of slots, as the caller knows it
-- ARGV[2] name        in lower case
-- ARGV[3] topic       the name of its topic if it is a subscription, otherwise its own name
--
-- Result: nothing, or { the record, or an empty text if a list has the name but there is no record; 1 if some partition
--   of the topic may still lack the topic's version, 2 if the topic is being deleted, otherwise 0; the number of
--   subscriptions, of SQL filters and of correlation filters of the topic }. Every filter that is not a correlation
--   filter counts as an SQL filter, even if it is always true or always false. Filters of subscriptions that are being
--   deleted are counted. If the topic's record or its counts cannot be read, the numbers are 0
-- Refusals: NAMESPACE, LAYOUT, SLOTS
-- Facts: repeatable, preloaded
-- @use open_bucket parse_entity tally
local n, refusal = open_bucket(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local records = redis.call('HMGET', KEYS[2], ARGV[2], ARGV[3])
local record = records[1]
if not record then
  if not redis.call('ZSCORE', KEYS[ARGV[2] == ARGV[3] and 3 or 4], ARGV[2]) then
    return nil
  end
  record = ''
end
local counted = redis.call('HGET', KEYS[7], ARGV[3])
local topic = parse_entity(records[2], ARGV[3])
if not topic then
  return { record, 0, 0, 0, 0 }
end
if not counted then
  return { record, ARGV[2] ~= ARGV[3] and 2 or 0, 0, 0, 0 }
end
local t = tally(counted, ARGV[3])
if not t then
  return { record, 1, 0, 0, 0 }
end
local behind = tonumber(t.mark) < tonumber(topic.version) and 1 or 0
-- The places of a topic's rules begin with its name and this segment. No name of an entity contains the segment.
local rules = redis.call('ZLEXCOUNT', KEYS[6], '[' .. ARGV[3] .. '/subscriptions/', '(' .. ARGV[3] .. '/subscriptions0')
return { record, behind, t.subscriptions, math.max(rules - t.correlation, 0), t.correlation }
