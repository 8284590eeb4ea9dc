#!lua
-- Gives a subscription another rule, under a name that is free.
--
-- KEYS[1-7] registry   in the order of register_namespace.lua
-- ARGV[1] partitions   of the namespace, as the caller knows it
-- ARGV[2] topic        its name in small letters
-- ARGV[3] name         the path of the subscription in small letters
-- ARGV[4] incarnation  of the subscription
-- ARGV[5] stamp        of the topic's record, drawn by the caller: one of the last few, or that of the rule, is a repetition
-- ARGV[6] place        of the rule: the path of the subscription, a blank, its name in small letters
-- ARGV[7] kind         of its filter, as in includes/topics/parse_rule.lua
-- ARGV[8] description  of the rule
-- ARGV[9] sql          filters that a topic may have at most
-- ARGV[10] correlation filters that a topic may have at most
--
-- Result: { the record of the topic, when the rule was created }
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS, GONE (no such subscription, or another incarnation, or it is being deleted), EXISTS (it
--   has a rule of this name), QUOTA (what, and of how many), BADCALL
-- @use count_filters open_rule_change parse_rule raise_topic_version refuse server_time tally_text
local asked, answer = open_rule_change(KEYS, ARGV)
if not asked then
  return answer
end
if asked.before then
  return refuse('EXISTS', ARGV[6])
end
local s, stamp, now = asked.s, asked.stamp, server_time()
local created = table.concat({ '1', ARGV[7], stamp, now, ARGV[8] }, ' ')
local rule = parse_rule(created)
local too_many = count_filters(s.of_topic, rule.sql, rule.correlation, asked.most_sql, asked.most_correlation)
if too_many then
  return too_many
end

s.own.mark, s.own.sql, s.own.correlation = stamp, s.own.sql + rule.sql, s.own.correlation + rule.correlation
redis.call('HSET', KEYS[5], ARGV[6], created)
redis.call('ZADD', KEYS[6], 0, ARGV[6])
redis.call('HSET', KEYS[7], ARGV[3], tally_text(s.own))
return { raise_topic_version(KEYS, s, stamp), tonumber(now) }
