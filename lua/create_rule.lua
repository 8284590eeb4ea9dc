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
-- ARGV[7] kind         of its filter, as in includes/rule_of.lua
-- ARGV[8] description  of the rule
-- ARGV[9] sql          filters that a topic may have at most
-- ARGV[10] correlation filters that a topic may have at most
--
-- Result: { the record of the topic, when the rule was created }
-- Refusals: NAMESPACE, LAYOUT, PARTITIONS, GONE (no such subscription, or another incarnation, or it is being deleted), EXISTS (it
--   has a rule of this name), QUOTA (what, and of how many), BADCALL
-- @use count_in
-- @use placed
-- @use raise
-- @use refuse
-- @use registry
-- @use rule_of
-- @use server_time
-- @use subscribed
-- @use tally_text
-- @use token_of
-- @use whole
local stamp, most_sql, most_correlation = token_of(ARGV[5]), whole(ARGV[9], 0, 999999), whole(ARGV[10], 0, 999999)
if not token_of(ARGV[4]) or not stamp or not placed(ARGV[6], ARGV[3]) or not string.find(ARGV[7], '^[sct]$') or ARGV[8] == ''
  or not most_sql or not most_correlation then
  return refuse('BADCALL', 'rule')
end
local n, refusal = registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local s, gone = subscribed(KEYS, ARGV[2], ARGV[3], ARGV[4])
if not s then
  return gone
end
local text, before = redis.call('HGET', KEYS[5], ARGV[6]), nil
if text then
  local foreign
  before, foreign = rule_of(text)
  if not before then
    return foreign
  end
end
if string.find(s.topic.stamps, stamp, 1, true) or before and before.stamp == stamp then
  return { s.topic_record, tonumber(before and before.created or server_time()) }
end
if before then
  return refuse('EXISTS', ARGV[6])
end
local now = server_time()
local created = table.concat({ '1', ARGV[7], stamp, now, ARGV[8] }, ' ')
local rule = rule_of(created)
local too_many = count_in(s.of_topic, rule.sql, rule.correlation, most_sql, most_correlation)
if too_many then
  return too_many
end

s.own.mark, s.own.sql, s.own.correlation = stamp, s.own.sql + rule.sql, s.own.correlation + rule.correlation
redis.call('HSET', KEYS[5], ARGV[6], created)
redis.call('ZADD', KEYS[6], 0, ARGV[6])
redis.call('HSET', KEYS[7], ARGV[3], tally_text(s.own))
return { raise(KEYS, s, stamp), tonumber(now) }
