#!lua flags=allow-oom
-- Replaces the record of a subscription, if it is still the record that the caller has seen. If the change affects how
-- the messages of the topic are judged, the script also raises the version of the topic. It also runs when memory is
-- short, because a deletion starts with it.
--
-- KEYS[1-7] registry   in the order of register_namespace.lua
-- ARGV[1] slots        the namespace's number of slots, as the caller knows it
-- ARGV[2] topic        the topic's name in lower case
-- ARGV[3] name         the path of the subscription in lower case
-- ARGV[4] incarnation  of the subscription
-- ARGV[5] expected     the stamp of the record that the caller has seen
-- ARGV[6] stamp        the new stamp of the record, and of the topic's record, chosen at random by the caller. If it is
--   one of the record's last few stamps, the call is a repetition
-- ARGV[7] version      of the settings in the new record: the version before the change, or the next version
-- ARGV[8] judging      1 if the change affects how messages are judged: the subscription becomes active, or its
--   treatment of errors changes
-- ARGV[9] ending       1 if the subscription is being deleted; the topic's version is then raised unless the topic is
--   being deleted too. 2 if a removal is taken back: the version rises, but this is no update. Otherwise 0
-- ARGV[10] description of the subscription
--
-- Result: { the record of the subscription, the record of the topic or nothing if there is no topic }
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such subscription, or it has another incarnation, or its
--   topic is being deleted and the subscription is not), CHANGED (another caller changed the record first; the detail
--   is the current version), BADCALL
-- Facts: repeatable
-- @use add_stamp open_registry open_subscription parse_entity parse_stamp raise_topic_version refuse server_time
-- @use whole_number
local stamp, version, ending = parse_stamp(ARGV[6]), whole_number(ARGV[7], 1, 999999999999999), ARGV[9] == '1'
if not parse_stamp(ARGV[4]) or not parse_stamp(ARGV[5]) or not stamp or not version or ARGV[8] ~= '0' and ARGV[8] ~= '1'
  or not string.find(ARGV[9], '^[012]$') or ARGV[10] == '' then
  return refuse('BADCALL', 'subscription')
end
local n, refusal = open_registry(KEYS[1], ARGV[1])
if not n then
  return refusal
end
local records = redis.call('HMGET', KEYS[2], ARGV[3], ARGV[2])
if not records[1] then
  return refuse('GONE', ARGV[3])
end
local entity, foreign = parse_entity(records[1], ARGV[3])
if not entity then
  return foreign
end
if entity.incarnation ~= ARGV[4] then
  return refuse('GONE', ARGV[3])
end
if string.find(entity.stamps, stamp, 1, true) then
  return { records[1], records[2] or '' }
end
if string.sub(entity.stamps, 1, #stamp) ~= ARGV[5] then
  return refuse('CHANGED', entity.version)
end
local before = tonumber(entity.version)
if version ~= before and version ~= before + 1 then
  return refuse('BADCALL', 'version')
end
local s, gone = nil, nil
if ARGV[8] == '1' or ending and redis.call('HEXISTS', KEYS[7], ARGV[2]) == 1 then
  s, gone = open_subscription(KEYS, ARGV[2], ARGV[3], ARGV[4])
  if not s then
    return gone
  end
end

local updated = entity.updated
if version ~= before and ARGV[9] ~= '2' then
  updated = string.format('%.0f', math.max(tonumber(updated), tonumber(server_time())))
end
local stamps = add_stamp(entity.stamps, stamp)
local record = table.concat({ '2', ARGV[7], entity.id, entity.incarnation, stamps, entity.created, updated, ARGV[10] }, ' ')
redis.call('HSET', KEYS[2], ARGV[3], record)
if ending then
  redis.call('HDEL', KEYS[7], ARGV[3])
end
if not s then
  return { record, records[2] or '' }
end
if ending then
  local t = s.of_topic
  t.subscriptions, t.sql, t.correlation = t.subscriptions - 1, t.sql - s.own.sql, t.correlation - s.own.correlation
end
return { record, raise_topic_version(KEYS, s, stamp) }
