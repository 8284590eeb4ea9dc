#!lua flags=allow-oom
-- Deletes a rule of a subscription, also one that is missing or damaged. Of such a rule it is not known whether it was
-- counted as an SQL filter or as a correlation filter, so the counts stay as they are.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots, as the caller knows it
-- ARGV[3] topic        the topic's name in lower case
-- ARGV[4] name         the path of the subscription in lower case
-- ARGV[5] incarnation  of the subscription
-- ARGV[6] stamp        the new stamp of the topic's record, chosen at random by the caller. If it is one of the
--   record's last few stamps, the call is a repetition
-- ARGV[7] place        of the rule: the path of the subscription, a blank, the name of the rule in lower case
--
-- Result: the record of the topic
-- Refusals: NAMESPACE, LAYOUT (also if another release wrote the rule), SLOTS, GONE (there is no such
--   subscription, or it has another incarnation, or it is being deleted), MISSING (the subscription has no rule of this
--   name), BADCALL
-- Facts: repeatable
-- @use is_rule_of note_changes open_bucket open_subscription parse_rule parse_stamp raise_topic_version refuse
-- @use tally_text
local stamp = parse_stamp(ARGV[6])
if not parse_stamp(ARGV[5]) or not stamp or not is_rule_of(ARGV[7], ARGV[4]) then
  return refuse('BADCALL', 'rule')
end
local n, refusal = open_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local s, gone = open_subscription(KEYS, ARGV[3], ARGV[4], ARGV[5])
if not s then
  return gone
end
if string.find(s.topic.stamps, stamp, 1, true) then
  return s.topic_record
end
local text = redis.call('HGET', KEYS[5], ARGV[7])
if not text and not redis.call('ZSCORE', KEYS[6], ARGV[7]) then
  return refuse('MISSING', ARGV[7])
end
local rule, foreign = parse_rule(text or '', ARGV[7])
if not rule and string.find(text or '', '^%d+ ') and not string.find(text, '^2 ') then
  return foreign -- a newer release has written the rule
end
rule = rule or { sql = 0, correlation = 0 }

local t = s.of_topic
t.sql, t.correlation = t.sql - rule.sql, t.correlation - rule.correlation
s.own.mark, s.own.sql, s.own.correlation = stamp, s.own.sql - rule.sql, s.own.correlation - rule.correlation
redis.call('HDEL', KEYS[5], ARGV[7])
redis.call('ZREM', KEYS[6], ARGV[7])
redis.call('HSET', KEYS[7], ARGV[4], tally_text(s.own))
note_changes(KEYS, n, ARGV[1], { ARGV[3] })
return raise_topic_version(KEYS, s, stamp)
