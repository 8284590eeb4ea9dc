#!lua flags=allow-oom
-- Replaces the record of a subscription, if it is still the record that the caller has seen. If the change affects how
-- the messages of the topic are judged, the script also raises the version of the topic. It also runs when memory is
-- short, because a deletion starts with it.
--
-- KEYS[1-10] bucket    in the order of begin_bucket.lua
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots, as the caller knows it
-- ARGV[3] topic        the topic's name in lower case
-- ARGV[4] name         the path of the subscription in lower case
-- ARGV[5] incarnation  of the subscription
-- ARGV[6] expected     the stamp of the record that the caller has seen
-- ARGV[7] stamp        the new stamp of the record, and of the topic's record, chosen at random by the caller. If it is
--   one of the record's last few stamps, the call is a repetition
-- ARGV[8] version      of the settings in the new record: the version before the change, or the next version
-- ARGV[9] judging      1 if the change affects how messages are judged: the subscription becomes active, or its
--   treatment of errors changes
-- ARGV[10] ending       1 if the subscription is being deleted; the topic's version is then raised unless the topic is
--   being deleted too. 2 if a removal is taken back: the version rises, but this is no update. Otherwise 0
-- ARGV[11] description of the subscription
--
-- Result: { the record of the subscription, the record of the topic or nothing if there is no topic }
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such subscription, or it has another incarnation, or its
--   topic is being deleted and the subscription is not), CHANGED (another caller changed the record first; the detail
--   is the current version), BADCALL
-- Facts: repeatable
-- @use add_stamp note_changes open_bucket open_subscription parse_entity parse_stamp raise_topic_version refuse
-- @use server_time whole_number
local stamp, version, ending = parse_stamp(ARGV[7]), whole_number(ARGV[8], 1, 999999999999999), ARGV[10] == '1'
if not parse_stamp(ARGV[5]) or not parse_stamp(ARGV[6]) or not stamp or not version or ARGV[9] ~= '0' and ARGV[9] ~= '1'
  or not string.find(ARGV[10], '^[012]$') or ARGV[11] == '' then
  return refuse('BADCALL', 'subscription')
end
local n, refusal = open_bucket(KEYS[1], ARGV[2])
if not n then
  return refusal
end
local records = redis.call('HMGET', KEYS[2], ARGV[4], ARGV[3])
if not records[1] then
  return refuse('GONE', ARGV[4])
end
local entity, foreign = parse_entity(records[1], ARGV[4])
if not entity then
  return foreign
end
if entity.incarnation ~= ARGV[5] then
  return refuse('GONE', ARGV[4])
end
if string.find(entity.stamps, stamp, 1, true) then
  return { records[1], records[2] or '' }
end
if string.sub(entity.stamps, 1, #stamp) ~= ARGV[6] then
  return refuse('CHANGED', entity.version)
end
local before = tonumber(entity.version)
if version ~= before and version ~= before + 1 then
  return refuse('BADCALL', 'version')
end
local s, gone = nil, nil
if ARGV[9] == '1' or ending and redis.call('HEXISTS', KEYS[7], ARGV[3]) == 1 then
  s, gone = open_subscription(KEYS, ARGV[3], ARGV[4], ARGV[5])
  if not s then
    return gone
  end
end

local updated = entity.updated
if version ~= before and ARGV[10] ~= '2' then
  updated = string.format('%.0f', math.max(tonumber(updated), tonumber(server_time())))
end
local stamps = add_stamp(entity.stamps, stamp)
local record = table.concat({ '2', ARGV[8], entity.id, entity.incarnation, stamps, entity.created, updated, ARGV[11] }, ' ')
redis.call('HSET', KEYS[2], ARGV[4], record)
if ending then
  redis.call('HDEL', KEYS[7], ARGV[4])
end
note_changes(KEYS, n, ARGV[1], { ARGV[4], s and ARGV[3] })
if not s then
  return { record, records[2] or '' }
end
if ending then
  local t = s.of_topic
  t.subscriptions, t.sql, t.correlation = t.subscriptions - 1, t.sql - s.own.sql, t.correlation - s.own.correlation
end
return { record, raise_topic_version(KEYS, s, stamp) }
