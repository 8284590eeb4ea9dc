#!lua flags=allow-oom
-- Records that all partitions of a topic have been told a version of the topic. The script also runs when memory is
-- short, because it is a step of a deletion.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] slots        the namespace's number of slots, as the caller knows it
-- ARGV[2] topic        the topic's name in lower case
-- ARGV[3] incarnation  of the topic
-- ARGV[4] version      the version that the partitions have been told
--
-- Result: 1; or 0 if this version or a later one was recorded before, or if the topic is gone or has another
--   incarnation
-- Refusals: NAMESPACE, LAYOUT, SLOTS, BADCALL
-- Facts: repeatable
-- @use open_bucket parse_stamp refuse tally tally_text whole_number
local version = whole_number(ARGV[4], 1, 999999999999999)
if not parse_stamp(ARGV[3]) or not version then
  return refuse('BADCALL', 'version')
end
local n, refusal = open_bucket(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local counted = redis.call('HGET', KEYS[7], ARGV[2])
if not counted then
  return 0
end
local t, foreign = tally(counted, ARGV[2])
if not t then
  return foreign
end
if t.incarnation ~= ARGV[3] or tonumber(t.mark) >= version then
  return 0
end
t.mark = ARGV[4]
redis.call('HSET', KEYS[7], ARGV[2], tally_text(t))
return 1
