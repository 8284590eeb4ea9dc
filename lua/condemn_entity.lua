#!lua flags=allow-oom
-- Begins to delete an entity whose record cannot be read: replaces the record by one that says that the entity is being
-- deleted. If the entity is a subscription, the version of its topic rises, as when any subscription is deleted.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots, as the caller knows it
-- ARGV[3] topic        the name of its topic in lower case if it is a subscription, otherwise its own name
-- ARGV[4] name         of the entity (a subscription: its path) in lower case
-- ARGV[5] seen         the record as the caller has read it, or nothing if it is missing
-- ARGV[6] id           of the entity, or nothing if the caller could not read it; the entity then keeps the id under
--   which the bucket knows it
-- ARGV[7] incarnation  of the entity; chosen at random by the caller if it could not be read
-- ARGV[8] version      of the settings in the new record
-- ARGV[9] stamp        the new stamp of the record, and of the topic's record, chosen at random by the caller
-- ARGV[10] bucket      the two characters with which ids in this bucket begin
-- ARGV[11] description of the entity that is being deleted
--
-- Result: the record
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such entity), CHANGED (the record is another one by now;
--   the detail is the name), BADCALL
-- Facts: repeatable
-- @use base36 next_number note_changes open_bucket parse_entity parse_stamp raise_topic_version refuse server_time
-- @use tally whole_number
local topic_name, name, seen, incarnation, stamp = ARGV[3], ARGV[4], ARGV[5], parse_stamp(ARGV[7]), parse_stamp(ARGV[9])
if topic_name == '' or name == '' or not incarnation or not stamp or not string.find(ARGV[6], '^%w*$')
  or not whole_number(ARGV[8], 1, 999999999999999) or not string.find(ARGV[10], '^%w%w$') or ARGV[11] == '' then
  return refuse('BADCALL', 'entity')
end
local n, refusal = open_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local there = redis.call('HGET', KEYS[2], name)
local is_subscription = topic_name ~= name
if not there and not redis.call('ZSCORE', KEYS[is_subscription and 4 or 3], name) then
  return refuse('GONE', name)
end
local entity = parse_entity(there, name)
if entity and string.sub(entity.stamps, 1, #stamp) == stamp then
  return there
end
if (there or '') ~= seen then
  return refuse('CHANGED', name)
end
local s = nil
if is_subscription then
  local records = redis.call('HMGET', KEYS[2], topic_name)
  local tallies = redis.call('HMGET', KEYS[7], topic_name, name)
  local topic = parse_entity(records[1], topic_name)
  local of_topic = tallies[1] and tally(tallies[1], topic_name)
  if topic and of_topic and tallies[2] then
    local own = tally(tallies[2], name) or { sql = 0, correlation = 0 }
    s = { topic = topic, topic_name = topic_name, topic_record = records[1], of_topic = of_topic, own = own }
  end
end

local id, now = ARGV[6], server_time()
if id == '' then
  local ids = redis.call('HGETALL', KEYS[8])
  for i = 2, #ids, 2 do
    id = ids[i] == name and ids[i - 1] or id
  end
  id = id ~= '' and id or ARGV[10] .. base36(next_number(n, ARGV[1]))
end
local record = table.concat({ '2', ARGV[8], id, incarnation, stamp, now, now, ARGV[11] }, ' ')
redis.call('HSET', KEYS[2], name, record)
redis.call('HSET', KEYS[8], id, name)
redis.call('HDEL', KEYS[7], name)
if s then
  local t = s.of_topic
  t.subscriptions, t.sql, t.correlation = t.subscriptions - 1, t.sql - s.own.sql, t.correlation - s.own.correlation
  raise_topic_version(KEYS, s, stamp)
end
note_changes(KEYS, n, ARGV[1], { name, s and topic_name })
return record
