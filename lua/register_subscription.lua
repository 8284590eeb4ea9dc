#!lua
-- Adds a subscription of a topic to the registry, with its rules. The rules are stored and counted immediately, but no
-- message is judged by them before the subscription becomes active.
--
-- KEYS[1-10] bucket     in the order of begin_bucket.lua
-- ARGV[1] run_id        of the server process, put in by the transport
-- ARGV[2] slots         the namespace's number of slots, as the caller knows it
-- ARGV[3] topic         the topic's name in lower case
-- ARGV[4] expected      the incarnation of the topic that the caller has seen
-- ARGV[5] name          the path of the subscription in lower case
-- ARGV[6] incarnation   chosen at random by the caller. It distinguishes a repetition of this call from another
--   creation, and is the first stamp of the record
-- ARGV[7] description   of the subscription
-- ARGV[8] subscriptions the largest number of subscriptions of a topic
-- ARGV[9] sql           the largest number of SQL filters of a topic
-- ARGV[10] correlation  the largest number of correlation filters of a topic
-- ARGV[11] bucket       the two characters with which ids in this bucket begin
-- ARGV[12] checked      1 if the caller has checked the limits of the namespace
-- ARGV[13...] rules     for each rule its place (the path, a blank, the name in lower case), its kind as in
--   includes/topics/parse_rule.lua, and its description
--
-- Result: the record
-- Refusals: NAMESPACE, LAYOUT (also if the name is in use and its record is missing or cannot be read), SLOTS,
--   EXISTS (the topic has a subscription of this name), GONE (there is no such
--   topic, or it has another incarnation, or it is being deleted), QUOTA (the topic would have too many subscriptions
--   or too many filters of one kind; the detail is `subscriptions` or the kind, and the limit), LIMITED (the namespace
--   has limits; the detail has the numbers of entities and megabytes to be added), BADCALL
-- Facts: repeatable
-- @use base36 count_filters is_rule_of next_number note_changes open_bucket parse_entity parse_stamp refuse
-- @use refuse_unchecked refuse_unreadable server_time tally tally_text whole_number write_many
local MOST_RULES = 1000
local name, incarnation = ARGV[5], parse_stamp(ARGV[6])
local most = whole_number(ARGV[8], 0, 999999)
local most_sql, most_correlation = whole_number(ARGV[9], 0, 999999), whole_number(ARGV[10], 0, 999999)
if not incarnation or not parse_stamp(ARGV[4]) or ARGV[3] == '' or name == '' or ARGV[7] == '' or not most or not most_sql
  or not most_correlation or not string.find(ARGV[11] or '', '^%w%w$') or (#ARGV - 12) % 3 ~= 0
  or #ARGV > 12 + 3 * MOST_RULES then
  return refuse('BADCALL', 'subscription')
end
local kinds, known = { s = 0, c = 0, t = 0 }, {}
for i = 13, #ARGV, 3 do
  local place, kind = ARGV[i], ARGV[i + 1]
  if not is_rule_of(place, name) or known[place] or not kinds[kind] or ARGV[i + 2] == '' then
    return refuse('BADCALL', 'rules')
  end
  kinds[kind], known[place] = kinds[kind] + 1, true
end
local n, refusal = open_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local records = redis.call('HMGET', KEYS[2], name, ARGV[3])
local counted = redis.call('HGET', KEYS[7], ARGV[3])
if records[1] then
  local entity, foreign = parse_entity(records[1], name)
  if not entity then
    return foreign
  end
  if entity.incarnation ~= incarnation then
    return refuse('EXISTS', name)
  end
  return records[1]
end
if redis.call('ZSCORE', KEYS[4], name) then
  return refuse_unreadable('record', nil, name) -- rules of the subscription may be left
end
if not records[2] or not counted then
  return refuse('GONE', ARGV[3])
end
local t, unreadable = tally(counted, ARGV[3])
if not t then
  return unreadable
end
if t.incarnation ~= ARGV[4] then
  return refuse('GONE', ARGV[3])
end
t.subscriptions = t.subscriptions + 1
if t.subscriptions > most then
  return refuse('QUOTA', string.format('subscriptions %.0f', most))
end
local too_many = count_filters(t, kinds.s, kinds.c, most_sql, most_correlation)
too_many = too_many or refuse_unchecked(n, ARGV[12], 1, 0)
if too_many then
  return too_many
end

local id = ARGV[11] .. base36(next_number(n, ARGV[1]))
local now = server_time()
local record = table.concat({ '2', '1', id, incarnation, incarnation, now, now, ARGV[7] }, ' ')
local own = { incarnation = incarnation, mark = incarnation, subscriptions = 0, sql = kinds.s, correlation = kinds.c }
local texts, places = {}, {}
for i = 13, #ARGV, 3 do
  texts[#texts + 1] = ARGV[i]
  texts[#texts + 1] = table.concat({ '2', ARGV[i + 1], incarnation, now, ARGV[i + 2] }, ' ')
  places[#places + 1] = 0
  places[#places + 1] = ARGV[i]
end
redis.call('HSET', KEYS[2], name, record)
redis.call('ZADD', KEYS[4], 0, name)
redis.call('HSET', KEYS[8], id, name)
redis.call('ZREM', KEYS[10], name)
write_many('HSET', KEYS[5], texts)
write_many('ZADD', KEYS[6], places)
redis.call('HSET', KEYS[7], ARGV[3], tally_text(t), name, tally_text(own))
note_changes(KEYS, n, ARGV[1], { name })
return record
