#!lua flags=allow-oom
-- Returns the messages that wait to be moved to other partitions, and the batches that are outstanding. These messages
-- wait: ready messages of the main side if the entity forwards them, transfers, and ready dead letters if the entity
-- forwards those. With `batch`, it returns the messages of one outstanding batch instead. If nothing waits and no batch
-- is outstanding, the partition announces the next message that waits.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    wanted      the largest number of messages
-- ARGV[8]    room        the largest number of bytes, changed properties included; the first message may exceed it
-- ARGV[9]    start       the place where to begin, as an earlier call returned it, or 0
-- ARGV[10]   batch       the destination of an outstanding batch, or nothing. The limits do not apply to its messages
--
-- Result: { more, the time as text, the birth of the partition, batches, names, the states as one text with a letter
--   for each message, records, extras, the place after the last message as text, or 0 at the end }. For each batch,
--   `batches` has its destination, its number, the incarnation of the destination, its names as runs and its purpose.
--   The states are a active and x transfer. `extras` has what delivery_extras adds for some of them.
--   If `more` is 1, nothing was read: make the call again
-- Refusals: call
-- Facts: repeatable, laneless
-- @use advance finish names_of_runs outgoing_messages outgoing_ranges outstanding_batch parse_destination refuse
-- @use split_words whole_number
local wanted, room = whole_number(ARGV[7], 1, 1000), whole_number(ARGV[8], 1, 1073741824)
local start = string.find(ARGV[9], '^%d+$') and #ARGV[9] <= 16 and tonumber(ARGV[9])
if not wanted or not room or not start or ARGV[10] ~= '' and not parse_destination(ARGV[10]) then
  return refuse('BADCALL', 'outgoing')
end

advance(p, 250)
local now, birth = string.format('%.0f', p.now), redis.call('HGET', p.state, 'birth')
if p.more == 1 then
  finish(p, '')
  return { 1, now, birth, {}, {}, '', {}, {}, '0' }
end
local batches, names, scores, onward = {}, {}, {}, '0'
local destinations = ARGV[10] ~= '' and { ARGV[10] } or split_words(redis.call('HGET', p.lasting, 'batches') or '')
for i = 1, #destinations do
  local number, incarnation, runs, purpose = outstanding_batch(p, destinations[i])
  if number then
    for _, text in ipairs({ destinations[i], number, incarnation, runs, purpose }) do
      batches[#batches + 1] = text
    end
  end
end
if ARGV[10] ~= '' then
  names = batches[4] and names_of_runs(batches[4]) or {}
else
  local ranges = outgoing_ranges(p)
  for i = 1, #ranges do
    local first = math.max(start, ranges[i][1])
    if #names < wanted and first <= ranges[i][2] then
      local found = redis.call('ZRANGE', p.order, first, ranges[i][2], 'BYSCORE', 'LIMIT', 0, wanted - #names, 'WITHSCORES')
      for j = 1, #found, 2 do
        names[#names + 1], scores[#scores + 1] = found[j], tonumber(found[j + 1])
      end
    end
  end
end

local whole = ARGV[10] ~= '' -- a batch is read as a whole
local fit, _, states, records, extras = outgoing_messages(p, names, whole and math.huge or room)
if not whole and fit > 0 then
  if fit < #names or fit == wanted then
    onward = string.format('%.0f', scores[fit] + 1)
  end
  names = { unpack(names, 1, fit) }
end
if not whole then
  local waits = fit > 0 or #batches > 0
  if waits ~= p.calling and (waits or start == 0) then
    p.changed.calling, p.calling = waits and '1' or '', waits
  end
end
finish(p, '')
return { p.more, now, birth, batches, names, states, records, extras, onward }
