-- Chooses the messages that can be received first, oldest first within a level, and reads them: at most `most` messages
-- and `room` bytes, changed properties included, but at least one message if there is one. Messages that have expired
-- are passed over, and so are messages of the main side whose records are lost. The messages get the token of their
-- lock; the caller writes their entries and their new states, or deletes them. `members_of` returns a part of the
-- members, beginning after `seen` of them; without it, the members of the side are chosen. With `pushes` the messages
-- are for a push: then they end before the first one that does not fit or has more than 16 KB, and there may be none. A
-- suspect is chosen alone if `suspects` is true, and passed over if it is false; if it is nil, suspects are messages
-- like others.
--
-- Result, a table:
--   n          the number of messages
--   names, numbers, records   their names, numbers and records
--   extras     what delivery_extras adds for some of them
--   size       the number of their bytes, changed properties included
--   entries    their entries, with the token
--   emptied    whether there are no further messages of this kind
--   passed     whether suspects were passed over
--   lost       the names of messages whose records are lost, if there are any; the caller sets these messages aside.
--              `lost_entries` are their entries
-- @use changes_size count_records_that_fit delivery_extras due_name lost_record never_text number_text read_entries
-- @use read_records record_key record_of
local function choose_messages(p, side, token, most, room, members_of, pushes, suspects)
  local names, numbers, found, extras, entered, held, passed = nil, nil, nil, {}, {}, token .. ' ', false
  local n, seen, full, late, spent, emptied, lost, lost_entries = 0, 0, false, 0, 0, false, nil, nil
  local ranked, length, tail, whole, byte = nil, nil, nil, room, string.byte
  local main, from = side.prefix == '', #side.prefix + 1
  while n < most and not full do
    local members, wanted = nil, most - n + (passed and 32 or 0)
    if members_of then
      members = members_of(seen, wanted)
    else
      members = redis.call('ZRANGE', p.order, side.from, side.to, 'BYSCORE',
        'LIMIT', number_text[seen], number_text[wanted])
    end
    local asked, there = #members, #members
    if asked == 0 then
      emptied = late == 0
      break
    end
    local sent = asked == 1 and p.sent and p.sent[members[1]] -- by this call: it has no entry
    local entries, counted, stored = sent and { false } or read_entries(p, members, room), {}, members
    if #entries < asked then
      asked, members = #entries, { unpack(members, 1, #entries) }
      stored = members
    end
    for i = 1, asked do
      counted[i] = main and members[i] + 0 or string.sub(members[i], from) + 0
    end
    if not main or p.shared then
      stored = {}
      for i = 1, asked do
        stored[i] = record_of(members[i], entries[i])
      end
    end
    local fit = count_records_that_fit(p, stored, room, entries)
    local first = suspects == false and entries[1] and string.byte(entries[1], 12) or 32
    local passes = first == 48 or first > 49
    if pushes and p.biggest > 16384 and not passes and redis.call('HSTRLEN', record_key(p.keys, stored[1]), stored[1]) > 16384 then
      break
    end
    if fit < asked then
      asked, stored = fit, { unpack(stored, 1, fit) }
      counted[fit + 1] = nil
    end
    seen = seen + asked
    local bodies = sent and { sent } or read_records(p.keys, stored, not p.shared and main and counted or nil)
    if n == 0 then -- the chosen ones of the first part, most often all, are kept in its own lists
      names, numbers, found = members, counted, bodies
    end
    for i = 1, asked do
      local text, record = entries[i], bodies[i]
      local size, letter, level = #record, byte(record, 1, 2)
      local expires, suspect -- most messages never expire and are no suspects
      if text then
        local mark = byte(text, 12)
        expires, suspect = main and string.sub(text, 21, 33) or NEVER_TEXT, mark == 48 or mark > 49
        expires = expires ~= NEVER_TEXT and expires
      elseif main and letter == 120 then
        expires = string.sub(record, 16, 28)
      end
      if suspect and not suspects then
        passed = true
      elseif suspect and n > 0 then
        full = true
        break
      elseif main and record == LOST_RECORD then
        lost, lost_entries = lost or {}, lost_entries or {}
        lost[#lost + 1] = members[i]
        lost_entries[#lost] = text
        if #lost == 100 then
          full, p.more = true, 1
          break
        end
      elseif expires and tonumber(expires) <= p.now then
        -- This message has expired and is not given out. This call has not done all due work; a later `advance` expires
        -- the message.
        late, spent = late + 1, spent + size
        if late == 100 or spent > 2097152 then
          full = true
          break
        end
      else
        if (n > 0 or pushes) and size + (text and #text or 0) > room and size + changes_size(text) > room
          or pushes and size + (text and #text or 0) > 16384 and size + changes_size(text) > 16384 then
          full = true
          break
        end
        room = room - size
        n = n + 1
        if n ~= i or names ~= members then
          names[n], numbers[n], found[n] = members[i], counted[i], record
        end
        if text then
          room = room - delivery_extras(extras, n, text)
          entered[n] = token .. string.sub(text, 12)
        elseif expires then
          entered[n] = held .. string.char(level) .. 'a-00000' .. expires .. number_text[size] .. ';;;'
        else
          if size ~= length or level ~= ranked then
            ranked, length = level, size
            tail = held .. string.char(level) .. 'a-00000' .. NEVER_TEXT .. number_text[size] .. ';;;'
          end
          entered[n] = tail
        end
        if expires then
          p.unawaited[#p.unawaited + 1] = due_name('e', names[n])
        end
        if n == most or suspect then
          full = true
          break
        end
      end
    end
    if not full and asked == there and there < wanted then -- all members were read
      emptied = late == 0
      break
    end
  end
  names, numbers, found = names or {}, numbers or {}, found or {}
  for i = #names, n + 1, -1 do
    names[i], numbers[i], found[i] = nil, nil, nil
  end
  return {
    n = n, names = names, numbers = numbers, records = found, extras = extras, entries = entered, emptied = emptied,
    size = whole - room, passed = passed,
    lost = lost, lost_entries = lost_entries,
  }
end
