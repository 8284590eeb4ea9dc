#!lua
-- Gives a rule of a subscription another filter and another action. When it was created stays as it is.
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
-- ARGV[11] seen        stamp of the rule as the caller has read it, or nothing if it may be any
--
-- Result: { the record of the topic, when the rule was created }
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS, GONE (no such subscription, or another incarnation, or it is being deleted), MISSING (it
--   has no rule of this name), CHANGED (it is another by now), QUOTA (what, and of how many), BADCALL
-- @use count_filters open_rule_change parse_rule raise_topic_version refuse tally_text
local asked, answer = open_rule_change(KEYS, ARGV)
if not asked then
  return answer
end
local s, stamp, before = asked.s, asked.stamp, asked.before
if not before then
  return refuse('MISSING', ARGV[6])
end
if ARGV[11] ~= '' and ARGV[11] ~= before.stamp then
  return refuse('CHANGED', 'rule')
end
local updated = table.concat({ '1', ARGV[7], stamp, before.created, ARGV[8] }, ' ')
local rule = parse_rule(updated)
local sql, correlation = rule.sql - before.sql, rule.correlation - before.correlation
local too_many = count_filters(s.of_topic, sql, correlation, asked.most_sql, asked.most_correlation)
if too_many then
  return too_many
end

s.own.mark, s.own.sql, s.own.correlation = stamp, s.own.sql + sql, s.own.correlation + correlation
redis.call('HSET', KEYS[5], ARGV[6], updated)
redis.call('HSET', KEYS[7], ARGV[3], tally_text(s.own))
return { raise_topic_version(KEYS, s, stamp), tonumber(before.created) }
