#!lua flags=no-writes
-- Counts the messages by side and state, as they will be when all due work is done. The script writes nothing: it only
-- computes the effects of up to 500 due events. `more` says whether more events are due.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
--
-- Result: { more, the time in ms until something is due, the number of bytes, the last message number, the counts of
--   the main side: active, held, locked, delayed, deferred, frozen, scheduled, transfer; the counts of the dead-letter
--   queue and of the transfer dead-letter queue: active, held, locked, delayed, deferred, frozen; and the time of the
--   last use }
-- Refusals: call
-- Facts: repeatable, laneless
-- @use band compute_due levels next_due_after sides state_bands
local bands = { [0] = redis.call('ZCOUNT', p.order, 0, LEVELS * BAND - 1) }
for i = 1, #STATE_BANDS do
  local band = STATE_BANDS[i]
  bands[band] = redis.call('ZCOUNT', p.order, band * BAND, (band + 1) * BAND - 1)
end
local totals = redis.call('HMGET', p.store, 'bytes', 'seq', 'used')
local bytes, last = tonumber(totals[1]), tonumber(totals[2])
local o = compute_due(p, 500)
for i = 1, #o.moved do
  local m = o.moved[i]
  local before, after = m.side.ready, nil
  if m.was == 'L' then
    before = m.session and m.side.held or m.side.locked
  elseif m.was ~= 'e' then
    before = m.was == 'd' and m.side.delayed or m.side.scheduled
  end
  if m.is == 'dead' then
    after = SIDES.d.ready
  elseif m.is ~= 'gone' then
    after = m.is == 'deferred' and m.side.deferred or m.side.ready
  elseif not p.shared then
    bytes = bytes - (m.record and #m.record or m.e.size) - #m.e.changes
  end
  if m.record and m.is ~= 'gone' then
    bytes = bytes + m.e.size - #m.record
  end
  before = before / BAND
  bands[before] = bands[before] - 1
  if after then
    bands[after / BAND] = bands[after / BAND] + 1
  end
end
local reply = { o.more, next_due_after(p, o), bytes, o.seq or last + o.leap, bands[0] }
for i = 1, #STATE_BANDS do
  reply[#reply + 1] = bands[STATE_BANDS[i]]
end
reply[#reply + 1] = p.topic and math.max(p.used, tonumber(totals[3] or 0)) or p.used
return reply
