#!lua flags=allow-oom
-- Moves on in sources of one slot whose messages of the main side all go to one destination each. In each source, the
-- script ends the batch that was taken by its destination, and freezes the messages that wait as the next batch. It
-- returns the messages of this batch. If a batch for the destination is outstanding, it returns that batch. So the call
-- may be repeated. If nothing waits in a source, the source announces the next message that waits. Whatever else a
-- source needs is left to the mover's other calls: see moves.md.
--
-- KEYS[1-35] partition   the first source, in the order of includes/calls/begin.lua
-- KEYS[36...] others     the keys of the other sources, 35 for each
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    wanted      the largest number of messages in all batches; 0 to freeze none
-- ARGV[8]    room        the largest number of bytes in all batches, changed properties included; the first message
--   may exceed it
-- ARGV[9]    destination of the first source: the id of the entity, a colon, and the number of the partition
-- ARGV[10]   holder      the incarnation of the destination
-- ARGV[11]   birth       of the source, as the taken batch told it; nothing if no batch was taken
-- ARGV[12]   batch       the number of the taken batch, or nothing
-- ARGV[13...] sources    for each other source its incarnation, its version, and its destination, holder, birth and
--   batch
--
-- Result: { more, the time as text, and a list for each source }. The list begins with a letter: f if a batch is
--   outstanding, n if nothing waits, l if messages may wait but the limits were reached, o if the source needs other
--   calls. After f follow the birth of the source, the number of the batch, its names as runs, their states as one
--   text, records and extras, as in outgoing.lua
-- Refusals: call
-- Facts: repeatable, laneless
-- @use advance_participants delete_moved end_batch finish freeze_messages key_count names_of_runs open_participants
-- @use outgoing_messages outgoing_ranges parse_destination read_many refuse whole_number
local left, room = whole_number(ARGV[7], 0, 1000), whole_number(ARGV[8], 1, 1073741824)
local sources, words = {}, {}
for at = 9, #ARGV, 6 do
  local destination, id = parse_destination(ARGV[at])
  local source = {
    destination = destination, id = id, holder = ARGV[at + 1], birth = ARGV[at + 2], batch = ARGV[at + 3],
    taken = ARGV[at + 3] ~= '' and whole_number(ARGV[at + 3], 1, 999999999999999),
  }
  if not destination or not source.batch or not string.find(source.holder, '^[%w_-]+$') or #source.holder > 64
    or (source.batch ~= '') ~= (source.taken and true or false) or (source.batch == '') ~= (source.birth == '') then
    return refuse('BADCALL', 'sources')
  end
  sources[#sources + 1] = source
  words[#words + 1], words[#words + 2] = ARGV[at + 4], ARGV[at + 5]
end
if not left or not room or #words ~= 2 * #sources - 2 then
  return refuse('BADCALL', 'sweep')
end
local participants, count = open_participants(p, KEYS, ARGV, words, 50)
if not participants then
  return count
end
if count * KEY_COUNT ~= #KEYS then
  return refuse('BADCALL', 'keys')
end

-- Deletes the messages of the taken batch, if it is the outstanding one.
local function settle(p, source, kept)
  local number, runs = string.match(kept.batch or '', '^(%d+) %S+ (%S+) ')
  if tonumber(number) ~= source.taken then
    return
  end
  local names = names_of_runs(runs)
  local entries = read_many('HMGET', p.entries, names)
  for i = 1, #names do
    delete_moved(p, names[i], entries[i])
  end
  kept.batch, kept.batches = nil, end_batch(p, source.destination, kept.batches)
end

-- Reads the first of these messages: all that fit, or the whole of an outstanding batch. Returns nil if the limits were
-- reached by the sources before this one.
local begun = false
local function read(p, names, whole)
  local fit, entries, states, records, extras = outgoing_messages(p, names, whole and math.huge or room)
  local bytes = 0
  for i = 1, fit do
    bytes = bytes + #records[i]
  end
  for i = 3, #extras, 3 do
    bytes = bytes + #extras[i]
  end
  if begun and (bytes > room or fit > left) then
    return nil
  end
  begun, left, room = true, math.max(0, left - fit), math.max(0, room - bytes)
  return fit, entries, states, records, extras
end

-- Returns the outstanding batch for the destination.
local function outstanding(p, source, kept)
  local number, holder, runs, purpose = string.match(kept.batch, '^(%d+) (%S+) (%S+) (.*)$')
  if holder ~= source.holder or purpose ~= '' then
    return { 'o' }
  end
  local fit, _, states, records, extras = read(p, names_of_runs(runs), true)
  return fit and { 'f', kept.birth, number, runs, states, records, extras } or { 'l' }
end

-- Freezes the messages of the main side that wait, as far as the limits allow.
local function freeze(p, source, kept)
  if (kept.batches or '') ~= '' then
    return { 'o' }
  end
  local ranges, main = outgoing_ranges(p), p.forwards and not p.reserved
  local names = main
    and redis.call('ZRANGE', p.order, ranges[1][1], ranges[1][2], 'BYSCORE', 'LIMIT', 0, left) or {}
  if #names == 0 then
    for i = main and 2 or 1, #ranges do
      if #redis.call('ZRANGE', p.order, ranges[i][1], ranges[i][2], 'BYSCORE', 'LIMIT', 0, 1) > 0 then
        return { 'o' }
      end
    end
    if p.calling then
      p.changed.calling, p.calling = '', false
    end
    return { 'n' }
  end
  local fit, entries, states, records, extras = read(p, names, false)
  if not fit then
    return { 'l' }
  end
  local found = { names = { unpack(names, 1, fit) }, entries = entries, letters = {} }
  for i = 1, fit do
    found.letters[i] = 'a'
  end
  local number, runs =
    freeze_messages(p, found, source.destination, source.id, source.holder, '', kept.batches, kept.told)
  return { 'f', kept.birth, number, runs, states, records, extras }
end

advance_participants(participants, count)
local reply = { 0, string.format('%.0f', p.now) }
for place = 1, count do
  local p, source, answer = participants[place], sources[place], { 'o' }
  if not p.refused then
    local kept = { birth = redis.call('HGET', p.state, 'birth') }
    kept.batch, kept.batches, kept.told =
      unpack(redis.call('HMGET', p.lasting, 'b:' .. source.destination, 'batches', 'to'))
    if source.taken and kept.birth == source.birth then
      settle(p, source, kept)
    end
    if left == 0 or room == 0 then
      answer = { 'l' }
    elseif p.more == 0 then
      answer = kept.batch and outstanding(p, source, kept) or freeze(p, source, kept)
    end
    finish(p, '')
    reply[1] = math.max(reply[1], p.more)
  end
  reply[place + 2] = answer
end
return reply
