#!lua flags=no-writes
-- Returns messages in the order of their numbers, in any of the given states, without changing them. The reply shows
-- the messages as they will be when all due work is done. The script writes nothing: it only computes the effects of up
-- to 500 due events. `more` says whether more events are due. Messages that are being moved count as active.
--
-- KEYS[1-33] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    side        nothing for the main side, or d for the dead-letter queue
-- ARGV[8]    from        the number to begin with
-- ARGV[9]    wanted      the largest number of messages
-- ARGV[10]   room        the largest number of bytes, changed properties included; the first message may exceed it
-- ARGV[11]   states      the states to show: a active, l locked, w delayed, f deferred, s scheduled, x transfers
-- ARGV[12]   session     the session whose messages to show, with `=` in front, or nothing for all
--
-- Result: { more, names, the states as one text with a letter for each message, records, extras }. `extras` has, for
--   some messages: index, failures, reason, expiry, changes. A message that was deferred when it was locked has the
--   state g; the letter l in `states` includes such messages.
-- Refusals: call, SESSIONS (the entity has no sessions)
-- @use band begin changes_size count_records_that_fit delivery_extras entry_text index_entries index_name
-- @use levels plan_due
-- @use parse_session read_entries read_records record_of refuse scheduled sides whole_number
local p, refusal = begin(KEYS, ARGV, 'peek', 12, false)
if not p then
  return refusal
end
local side, from = SIDES[ARGV[7]], whole_number(ARGV[8], 0, BAND - 1)
local wanted, room = whole_number(ARGV[9], 1, 1000), whole_number(ARGV[10], 1, 1073741824)
local session, unfit = parse_session(p, ARGV[12])
if unfit then
  return unfit
end
if session and ARGV[7] ~= '' or not side or not side.from or not from or not wanted or not room or p.lane ~= ''
  or not string.find(ARGV[11], '^[alwfsx]+$') then
  return refuse('BADCALL', 'peek')
end

local bands, all = { l = { side.locked }, w = { side.delayed }, f = { side.deferred } }, {}
bands.a = { side.ready, side.frozen, side.kept }
if side.prefix == '' then
  bands.s, bands.x = { SCHEDULED }, { side.transfer, side.frozen }
  for level = 1, LEVELS - 1 do
    bands.a[#bands.a + 1] = level * BAND
  end
  bands.l[2] = side.held
end

-- `o.moved` lists the messages that due events move. The loop below shows them at their new places, and `show` leaves
-- them out at their old places.
local o = plan_due(p, 500)
local deaths = p.dead_seq + o.leap
for i = 1, #o.dead do
  local m = o.dead[i]
  m.number, m.name, m.side = deaths + i, string.format('d%.0f', deaths + i), SIDES.d
end
local letters = { ready = 'a', deferred = 'f', dead = 'a' }
for i = 1, #o.moved do
  local m = o.moved[i]
  local letter = letters[m.is]
  if letter and m.side == side and m.number >= from and string.find(ARGV[11], letter, 1, true)
    and (not session or m.session == session) then
    all[#all + 1] = { name = m.name, number = m.number, state = letter, moved = m }
  end
end

-- Each list below is in the order of numbers. So if only one of them has messages, nothing is sorted.
local shown, highest, sorted = #all, -1, #all == 0
local function show(name, number, letter)
  if not o.by[name] then
    shown = shown + 1
    all[shown] = { name = name, number = number, state = letter }
    sorted, highest = sorted and number >= highest, number
  end
end

-- Returns for each of these frozen messages whether it is a transfer.
local function are_transfers(found)
  local is = {}
  for j = 1, #found, 2 do
    local text = redis.call('HGET', p.entries, found[j])
    is[j] = text and string.byte(text, 14) == 120 or false
  end
  return is
end

for letter, index_letter in pairs(session and { a = 'a', l = 'h', f = 'p', s = 's' } or {}) do
  if string.find(ARGV[11], letter, 1, true) then
    local found = index_entries(p, session, index_letter, from, 0, wanted + #o.moved)
    for j = 1, #found do
      local name, number = index_name(found[j])
      show(name, number, letter)
    end
  end
end
for letter, list in pairs(session and {} or bands) do
  if string.find(ARGV[11], letter, 1, true) then
    for i = 1, #list do
      local found = redis.call('ZRANGE', p.order, list[i] + from, list[i] + BAND - 1, 'BYSCORE', 'LIMIT', 0, wanted + #o.moved,
        'WITHSCORES')
      local transfers = list[i] == side.frozen and #found > 0 and side.prefix == '' and are_transfers(found)
      for j = 1, #found, 2 do
        if not transfers or transfers[j] == (letter == 'x') then
          show(found[j], tonumber(found[j + 1]) - list[i], letter)
        end
      end
    end
  end
end
if not sorted then
  table.sort(all, function(one, other)
    return one.number < other.number
  end)
end

local names, states, found, extras = {}, {}, {}, {}
local last, at, full = math.min(#all, wanted), 1, false
while at <= last and not full do
  local members, numbers = {}, {}
  for i = at, last do
    members[#members + 1] = all[i].name
  end
  local entries = read_entries(p, members, room)
  for i = 1, #entries do
    local m = all[at + i - 1].moved
    if m and m.record then
      numbers[i], entries[i] = m.member, m.is == 'dead' and entry_text('            ', m.e) or false
    elseif m then
      numbers[i], entries[i] = m.e.record ~= '' and m.e.record or m.member, entry_text('            ', m.e)
    else
      numbers[i] = record_of(members[i], entries[i])
    end
  end
  local fit = count_records_that_fit(p, numbers, room, entries)
  local bodies = read_records(p.keys, { unpack(numbers, 1, fit) })
  for i = 1, fit do
    local one, record = all[at + i - 1], bodies[i]
    if one.moved and one.moved.record then
      record = one.moved.head .. string.sub(record, 16)
    end
    local changed, after = changes_size(entries[i])
    local size = #record + changed
    if size > room and #names > 0 then
      full = true
      break
    end
    room = room - size
    local n = #names + 1
    names[n], states[n], found[n] = members[i], one.state, record
    if entries[i] then
      if states[n] == 'l' and string.find(entries[i], '^[fg]', 14) then
        states[n] = 'g'
      end
      delivery_extras(extras, n, entries[i], after)
    end
  end
  at, full = at + fit, full or room <= 0
end
return { o.more, names, table.concat(states), found, extras }
