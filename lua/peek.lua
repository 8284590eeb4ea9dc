#!lua flags=no-writes
-- Returns messages in the order of their numbers, in any of the given states, without changing them. The reply shows
-- the messages as they will be when all due work is done. The script writes nothing: it only computes the effects of up
-- to 500 due events. `more` says whether more events are due. Messages that are being moved count as active.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    side        nothing for the main side, d for the dead-letter queue, t for the transfer dead-letter queue
-- ARGV[8]    from        the number to begin with
-- ARGV[9]    wanted      the largest number of messages
-- ARGV[10]   room        the largest number of bytes, changed properties included; the first message may exceed it
-- ARGV[11]   states      the states to show: a active, l locked, w delayed, f deferred, s scheduled, x transfers
-- ARGV[12]   session     the session whose messages to show, with `=` in front, or nothing for all
--
-- Result: { more, names, the states as one text with a letter for each message, records, extras }. `extras` has what
--   delivery_extras adds for some messages. A message that was deferred when it was locked has the state g; the letter
--   l in `states` includes such messages.
-- Refusals: call, SESSIONS (the entity has no sessions)
-- Facts: repeatable, laneless
-- @use band changes_size compute_due count_records_that_fit delivery_extras entry_text levels parse_session
-- @use read_entries read_many read_records refuse scheduled session_messages sides whole_number
local side, from = SIDES[ARGV[7]], whole_number(ARGV[8], 0, BAND - 1)
local wanted, room = whole_number(ARGV[9], 1, 1000), whole_number(ARGV[10], 1, 1073741824)
local session, unfit = parse_session(p, ARGV[12])
if unfit then
  return unfit
end
if session and ARGV[7] ~= '' or not side or not from or not wanted or not room
  or not string.find(ARGV[11], '^[alwfsx]+$') then
  return refuse('BADCALL', 'peek')
end

local bands = { l = { side.locked }, w = { side.delayed }, f = { side.deferred } }
bands.a = { side.ready, side.frozen, side.kept }
if side.prefix == '' then
  bands.s, bands.x = { SCHEDULED }, { side.transfer, side.frozen }
  for level = 1, LEVELS - 1 do
    bands.a[#bands.a + 1] = level * BAND
  end
  bands.l[2] = side.held
end

-- `o.moved` lists the messages that due events move. They are shown at their new places, and left out at their old
-- ones.
local o = compute_due(p, 500)
local deaths, moved = p.dead_seq + o.leap, {}
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
    moved[#moved + 1] = m
  end
end

-- Returns those of these frozen messages that are transfers, or those that are not.
local function only_transfers(found, are)
  local kept, entries = {}, read_many('HMGET', p.entries, found)
  for i = 1, #found do
    local text = entries[i]
    if (text and string.byte(text, 14) == 120 or false) == are then
      kept[#kept + 1] = found[i]
    end
  end
  return kept
end

-- Each list has messages in one state, in the order of their numbers. This reads the names of the next part of a list,
-- and notes the number after which more may follow.
local cut = #side.prefix + 1
local function read_part(list, first, most)
  local part
  if session then
    part = session_messages(p, session, list.index, first, 0, most)
  else
    part = redis.call('ZRANGE', p.order, list.base + first, list.base + BAND - 1, 'BYSCORE', 'LIMIT', 0, most)
  end
  list.beyond = #part == most and tonumber(string.sub(part[most], cut))
  list.names, list.at = list.mixed and only_transfers(part, list.letter == 'x') or part, 0
end

-- Goes to the next message of a list, and notes its number. Messages that due events move are left out, unless the list
-- consists of them.
local function go_on(list)
  while true do
    list.at = list.at + 1
    local name = list.names[list.at]
    if name and (list.moved or not o.by[name]) then
      list.number = tonumber(string.sub(name, cut))
      return
    elseif not name and not list.beyond then
      list.number = math.huge
      return
    elseif not name then
      read_part(list, list.beyond + 1, 100)
    end
  end
end

local lists = {}
local function add_list(list, most)
  read_part(list, from, most or math.min(wanted, 100))
  if #list.names > 0 or list.beyond then
    lists[#lists + 1] = list
  end
end

for letter, index in pairs(session and { a = 'a', l = 'h', f = 'p', s = 's' } or {}) do
  if string.find(ARGV[11], letter, 1, true) then
    add_list({ letter = letter, index = index })
  end
end
-- Usually all messages are ready ones of the lowest level. Then one look replaces a look at each list.
if not session and side.ready == 0 and #redis.call('ZRANGE', p.order, BAND, '+inf', 'BYSCORE', 'LIMIT', 0, 1) == 0 then
  bands = {}
  if string.find(ARGV[11], 'a', 1, true) then
    add_list({ letter = 'a', base = 0 }, wanted)
  end
end
for letter, bases in pairs(session and {} or bands) do
  if string.find(ARGV[11], letter, 1, true) then
    for i = 1, #bases do
      add_list({ letter = letter, base = bases[i], mixed = bases[i] == side.frozen and side.prefix == '' })
    end
  end
end

-- Usually there is only one list, and nothing is due. Then its names are the result. Otherwise the lists are merged:
-- sorting 1,000 names of each list could take 80 ms.
local members, letter_of, moves = {}, nil, {}
if #lists == 1 and not lists[1].mixed and not next(o.by) then
  if lists[1].beyond and #lists[1].names < wanted then
    read_part(lists[1], from, wanted)
  end
  members = lists[1].names
else
  table.sort(moved, function(one, other)
    return one.number < other.number
  end)
  local numbered = {}
  for i = 1, #moved do
    numbered[i] = moved[i].name
  end
  lists[#lists + 1] = { names = numbered, moved = moved, at = 0 }
  for i = 1, #lists do
    go_on(lists[i])
  end
  local n, list, least, second = 0, nil, nil, nil
  letter_of = {}
  repeat
    list, least, second = nil, math.huge, math.huge
    for i = 1, #lists do
      local number = lists[i].number
      if number < least then
        list, least, second = lists[i], number, least
      elseif number < second then
        second = number
      end
    end
    while list and n < wanted and list.number <= second and list.number < math.huge do
      local m = list.moved and list.moved[list.at]
      n = n + 1
      members[n], letter_of[n], moves[n] = list.names[list.at], m and letters[m.is] or list.letter, m
      go_on(list)
    end
  until not list or n == wanted
end

-- Usually no message has an entry, and all are of one list. Then the records are the reply, as they are.
local last, first = #members, nil
if last > 0 and not letter_of then
  first = read_entries(p, members, room)
  local plain = #first == last
  for i = 1, #first do
    plain = plain and not first[i]
  end
  if plain then
    local fit = count_records_that_fit(p, members, room)
    local fitting = fit == last and members or { unpack(members, 1, fit) }
    return { o.more, fitting, string.rep(lists[1].letter, fit), read_records(p.keys, fitting, nil, true), {} }
  end
end

local names, states, found, extras = {}, {}, {}, {}
local at, full = 1, false
while at <= last and not full do
  local part = at == 1 and members or { unpack(members, at, last) }
  local entries, numbers, ends = at == 1 and first or read_entries(p, part, room), {}, {}
  for i = 1, #entries do
    local m, text = moves[at + i - 1], entries[i]
    if m and m.record then
      numbers[i], entries[i] = m.member, m.is == 'dead' and entry_text(m.e) or false
    elseif m then
      numbers[i], entries[i] = m.e.record ~= '' and m.e.record or m.member, entry_text(m.e)
    elseif text then
      local _, last_digit, other = string.find(text, '^%d+;(%d*);%d*;', 34)
      numbers[i], ends[i] = other ~= '' and other or part[i], last_digit
    else
      numbers[i] = part[i]
    end
  end
  local fit = count_records_that_fit(p, numbers, room, entries)
  local bodies = read_records(p.keys, fit == #numbers and numbers or { unpack(numbers, 1, fit) })
  for i = 1, fit do
    local m, record, text = moves[at + i - 1], bodies[i], entries[i]
    if m and m.record then
      record = m.head .. string.sub(record, 16)
    end
    local changed, after = 0, ends[i]
    if after then
      changed = #text - after
    elseif text then
      changed, after = changes_size(text)
    end
    local size, n = #record + changed, #names + 1
    if size > room and n > 1 then
      full = true
      break
    end
    room = room - size
    names[n], found[n], states[n] = part[i], record, letter_of and letter_of[at + i - 1] or lists[1].letter
    if text then
      if states[n] == 'l' and string.find(text, '^[fg]', 14) then
        states[n] = 'g'
      end
      delivery_extras(extras, n, text, after)
    end
  end
  at, full = at + fit, full or room <= 0
end
return { o.more, names, table.concat(states), found, extras }
