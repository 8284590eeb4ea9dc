#!lua flags=no-writes
-- Counts the messages by side and state, without doing anything of what is due.
--
-- KEYS[1-30] partition   in the order of includes/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
--
-- Result: { more, in how many ms something is due, bytes, the last number, main side: active, held, locked, delayed, deferred, frozen,
--   scheduled; dead-letter queue: the same but the last }
-- Refusals: call
-- @use band
-- @use begin
-- @use next_due
-- @use refuse
local p, refusal = begin(KEYS, ARGV, 'count', 6, false)
if not p then
  return refusal
end
if p.lane ~= '' then
  return refuse('BADCALL', 'lane')
end
local totals = redis.call('HMGET', p.store, 'bytes', 'seq')
local reply = { 0, next_due(p), tonumber(totals[1]), tonumber(totals[2]) }
reply[5] = redis.call('ZCOUNT', p.order, 0, 8 * BAND - 1)
for band = 8, 13 do
  reply[#reply + 1] = redis.call('ZCOUNT', p.order, band * BAND, (band + 1) * BAND - 1)
end
for band = 16, 21 do
  reply[#reply + 1] = redis.call('ZCOUNT', p.order, band * BAND, (band + 1) * BAND - 1)
end
return reply
