#!lua
-- Begins a bucket of a namespace, if it does not exist yet. A bucket is the part of the registry with the queues and
-- topics whose names choose its slot. The first creation of an entity in it begins it.
--
-- KEYS[1] bucket         hash: layout, slots, created, channel; `last`, the last number that an id or a change has got,
--   and run_id, the server process that gave it. The first number is the time in ms, so a bucket that was lost and is
--   begun anew gives no id again; `floor`, the number of the last deletion that `changes` has lost;
--   `limited`, 1 if the namespace has limits; `megabytes`, the sum of the sizes of queues and topics, and for each of
--   them `size:` and its name
-- KEYS[2] entities       hash: from an entity's name (a subscription: its path) in lower case to its record
-- KEYS[3] names          zset: the names of queues and topics in order, all with score 0
-- KEYS[4] subscriptions  zset: the paths of subscriptions in order, all with score 0
-- KEYS[5] rules          hash: from a rule's place (its subscription's path, a blank, its name) in lower case to the
--   rule
-- KEYS[6] places         zset: the places of rules in order, all with score 0
-- KEYS[7] tallies        hash: from the name of a topic or the path of a subscription to its counts, while it is not
--   being deleted
-- KEYS[8] ids            hash: from an entity's id to its name or path in lower case
-- KEYS[9] changes        zset: for each entity the number of its last change; also for entities that were deleted
-- KEYS[10] gone          zset: the names and paths in `changes` of entities that were deleted
-- ARGV[1] run_id       of the server process, put in by the transport
-- ARGV[2] slots        the namespace's number of slots
-- ARGV[3] channel      the channel in the bucket's slot on which changes are announced
-- ARGV[4] limited      1 if the namespace has limits, otherwise 0
-- ARGV[5] exact        1 if a bucket that already exists must also note whether there are limits
--
-- Result: nothing
-- Refusals: LAYOUT, SLOTS, BADCALL
-- Facts: repeatable
-- @use open_bucket refuse same_slot server_time whole_number
local function is_flag(text)
  return text == '0' or text == '1'
end
if not whole_number(ARGV[2], 1, 1024) or not same_slot(KEYS[1], ARGV[3]) or not is_flag(ARGV[4])
  or not is_flag(ARGV[5]) then
  return refuse('BADCALL', 'bucket')
end
if redis.call('HEXISTS', KEYS[1], 'layout') == 1 then
  local n, refusal = open_bucket(KEYS[1], ARGV[2])
  if not n then
    return refusal
  end
  if ARGV[5] == '1' then
    redis.call('HSET', KEYS[1], 'limited', ARGV[4])
  end
  return nil
end
local now = server_time()
redis.call('HSET', KEYS[1], 'layout', '2', 'slots', ARGV[2], 'created', now, 'last', now, 'run_id', ARGV[1],
  'channel', ARGV[3], 'floor', '0', 'limited', ARGV[4])
return nil
