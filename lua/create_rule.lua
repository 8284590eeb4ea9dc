#!lua
-- Adds a rule to a subscription. No other rule of the subscription may have its name.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots, as the caller knows it
-- ARGV[3] topic        the topic's name in lower case
-- ARGV[4] name         the path of the subscription in lower case
-- ARGV[5] incarnation  of the subscription
-- ARGV[6] stamp        the new stamp of the topic's record, chosen at random by the caller. If it is one of the
--   record's last few stamps, or the stamp of the rule, the call is a repetition
-- ARGV[7] place        of the rule: the path of the subscription, a blank, the name of the rule in lower case
-- ARGV[8] kind         of its filter, as in includes/topics/parse_rule.lua
-- ARGV[9] description  of the rule
-- ARGV[10] sql          the largest number of SQL filters of a topic
-- ARGV[11] correlation the largest number of correlation filters of a topic
--
-- Result: { the record of the topic, the time in ms when the rule was created }
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such subscription, or it has another incarnation, or it is
--   being deleted), EXISTS (the subscription already has a rule of this name), QUOTA (the topic would have too many
--   filters of one kind; the detail names the kind and its limit), BADCALL
-- Facts: repeatable
-- @use count_filters note_changes open_rule_change parse_rule raise_topic_version refuse server_time tally_text
local asked, answer = open_rule_change(KEYS, ARGV)
if not asked then
  return answer
end
if asked.before then
  return refuse('EXISTS', ARGV[7])
end
local s, stamp, now = asked.s, asked.stamp, server_time()
local created = table.concat({ '2', ARGV[8], stamp, now, ARGV[9] }, ' ')
local rule = parse_rule(created, ARGV[7])
local too_many = count_filters(s.of_topic, rule.sql, rule.correlation, asked.most_sql, asked.most_correlation)
if too_many then
  return too_many
end

s.own.mark, s.own.sql, s.own.correlation = stamp, s.own.sql + rule.sql, s.own.correlation + rule.correlation
redis.call('HSET', KEYS[5], ARGV[7], created)
redis.call('ZADD', KEYS[6], 0, ARGV[7])
redis.call('HSET', KEYS[7], ARGV[4], tally_text(s.own))
note_changes(KEYS, asked.n, ARGV[1], { ARGV[3] })
return { raise_topic_version(KEYS, s, stamp), tonumber(now) }
