#!lua flags=allow-oom
-- Deletes a partition. After the first step, every other call treats the partition as gone; this step also tells the
-- receivers with credit. In a subscription, the records belong to its topic, and each step removes some of this
-- partition's references to the records. Otherwise one step deletes everything.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    share       the number of messages whose references one step removes. With 0 the step removes nothing: the
--   partition only refuses every other call from then on
--
-- Result: { more, the birth of the partition, the ids of entities to which it has moved messages, separated by
--   blanks }. The birth is an empty text if the partition is not here
-- Refusals: GONE (another incarnation is here), LAYOUT, BADCALL
-- Facts: repeatable
-- @use delete_moved dismiss_receivers flush key_count read_many refuse sentinel server_time whole_number
local layout, text, kept, birth, credit = unpack(redis.call('HMGET', KEYS[1], 'layout', 'settings', 'kept', 'birth', 'credit'))
local share = whole_number(ARGV[7], 0, 1000)
if not share or #ARGV ~= 7 then
  return refuse('BADCALL', 'share')
end
if not layout then
  return { 0, '', '' }
end
if layout ~= '2' then
  return refuse('LAYOUT', layout)
end
local w = { WORDS.match(text) }
if w[WORDS.incarnation] ~= ARGV[2] then
  return refuse('GONE', 'partition')
end
local shared = w[WORDS.shared]
if credit ~= '' and w[WORDS.status] ~= 'Deleting' then
  local now = ARGV[6] ~= '' and ARGV[6] or server_time()
  dismiss_receivers({ words = KEYS[33], grants = KEYS[34], credit = credit, run = ARGV[1], now = tonumber(now) })
end
w[WORDS.status] = 'Deleting'
text = table.concat(w, ' ')
local reply = { 0, birth, string.match(redis.call('HGET', KEYS[30], 'to') or '', '^ ?(.-) ?$') }
if share == 0 then
  redis.call('HSET', KEYS[1], 'settings', text)
  return reply
end
if shared ~= '1' then
  redis.call('UNLINK', unpack(KEYS))
  return reply
end
if redis.call('EXISTS', KEYS[9]) == 0 then
  redis.call('UNLINK', unpack(KEYS, 27, KEY_COUNT)) -- the topic, which stored the messages, was destroyed before
  redis.call('UNLINK', unpack(KEYS, 1, 8))
  return reply
end

redis.call('HSET', KEYS[1], 'settings', text)
local members = redis.call('ZRANGE', KEYS[2], 0, SENTINEL.score - 1, 'BYSCORE', 'LIMIT', 0, share)
local p = {
  order = KEYS[2], entries = KEYS[3], due = KEYS[6], store = KEYS[9], refs = KEYS[10], keys = KEYS, shared = true,
  placed = {}, taken = {}, entered = {}, forgotten = {}, awaited = {}, unawaited = {},
  bytes = 0, next_due = 0,
}
local entries = read_many('HMGET', p.entries, members)
for i = 1, #members do
  delete_moved(p, members[i], entries[i])
end
flush(p)
if #members == share then
  reply[1] = 1
  return reply
end
redis.call('HINCRBY', KEYS[9], 'bytes', 0 - tonumber(kept)) -- not -0: Redis 7.0 does not pass -0 on as an integer
redis.call('UNLINK', unpack(KEYS, 27, KEY_COUNT))
redis.call('UNLINK', unpack(KEYS, 1, 8))
return reply
