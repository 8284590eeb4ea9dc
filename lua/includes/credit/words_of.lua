-- Reads the words of receivers by their keys, unless the call has read them. A word of an earlier epoch, or one that
-- has not seen the latest end of all credit, has no credit. A receiver that has not answered interest, or not reported
-- a gift, for a second is passed over until its next call. A word is stored as a text:
--   channel, number   the channel for pushes, and the number of the latest grant
--   prefix, serial, messages, bytes   the prefix of its tokens, the serial of the last gift, and what was given so far
--   seen, begun, hands   what its receiver has reported
--   callers, limit, most_bytes   the limits
--   flags        o once, i announced, d delete, s takes suspects, p did not answer interest, u has not seen old gifts,
--                y yields, m knows that other sessions wait, e its session is empty, c careful: gets suspects of a
--                session, but begins none
--   epoch, ends  as open_credit has them
--   open_until, forget_at   when the grant ends, and when the word may be forgotten
--   turn, told   the turn of its last gift, and since when interest is unanswered, or 0
--   unseen       for each unseen gift its serial, its time, the bytes that were pushed, and what was given so far
--   more         at the source of free sessions, how many messages and bytes come with each; at a held session, for
--                each gift that was not seen its prefix, its serial, and its messages as runs
-- `ranked` is the rank that it had when it was read. `untold` says that its receiver was not told yet of an end.
-- @use flags_of open_credit rank_of
local function words_of(p, keys)
  local c, missing = open_credit(p), {}
  for i = 1, #keys do
    if c.words[keys[i]] == nil then
      missing[#missing + 1] = keys[i]
    end
  end
  local found = #missing > 0 and redis.call('HMGET', p.words, unpack(missing)) or {}
  for i = 1, #missing do
    local key, w = missing[i], false
    if found[i] then
      local channel, number, prefix, serial, messages, bytes, seen, begun, hands, callers, limit, most_bytes, flags, epoch, ends,
        open_until, forget_at, turn, told, unseen, more = string.match(found[i],
        '^(%S*) (%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%a*) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*) ?(%S*)$')
      local source, has = string.sub(key, string.find(key, ' ', 1, true) + 1), flags_of[flags]
      local session, first, first_bytes = string.byte(source) == 61 and string.sub(source, 2) or nil, nil, nil
      if more ~= '' and not session then
        first, first_bytes = string.match(more, '^(%d+):(%d+)$')
      end
      w = {
        key = key, source = source, session = session, channel = channel,
        number = number + 0, prefix = prefix,
        serial = serial + 0, messages = messages + 0, bytes = bytes + 0, seen = seen + 0, begun = begun + 0, hands = hands + 0,
        callers = callers + 0, limit = limit + 0, most_bytes = most_bytes + 0,
        once = has.o == true, announced = has.i == true, delete = has.d == true, suspects = has.s == true, passed = has.p == true,
        late = has.u == true, yields = has.y == true, marked = has.m == true, careful = has.c == true, empty = has.e == true,
        epoch = epoch + 0, ends = ends + 0, open_until = open_until + 0,
        forget_at = forget_at + 0, turn = turn + 0, told = told + 0, unseen = {},
        first = (first or 0) + 0, first_bytes = (first_bytes or 0) + 0,
      }
      if session then
        w.gifts = {}
        for of, of_serial, runs in string.gmatch(more, '([%w_-]+):(%d+):([%d,-]+)') do
          w.gifts[#w.gifts + 1] = { prefix = of, serial = of_serial + 0, runs = runs }
        end
      end
      if unseen ~= '' and w.epoch == c.epochs then
        for of, time, pushed, until_messages, until_bytes in string.gmatch(unseen, '(%d+):(%d+):(%d+):(%d+):(%d+)') do
          w.unseen[#w.unseen + 1] = {
            serial = of + 0, time = time + 0, pushed = pushed + 0, messages = until_messages + 0, bytes = until_bytes + 0,
          }
        end
      end
      w.untold = c.untold and w.ends ~= c.ends and rank_of(c, w, p.now) ~= nil
      if w.epoch ~= c.epochs or w.ends ~= c.ends then
        w.limit, w.announced = math.min(w.limit, w.messages), false
        w.ends = c.ends
      end
      local ranked = w.untold and 0 or rank_of(c, w, 0)
      local told, announced, limit, late = w.told, w.announced, w.limit, w.late
      if w.open_until <= p.now then
        w.limit, w.announced = math.min(w.limit, w.messages), false
      end
      if w.told > 0 and w.told < p.now - 1000 then
        w.told, w.passed = 0, true
      end
      w.late = w.late or w.unseen[1] ~= nil and w.unseen[1].time < p.now - 1000
      if told ~= w.told or announced ~= w.announced or limit ~= w.limit or late ~= w.late then
        c.dirty[key] = w
      end
      w.ranked = ranked
    end
    c.words[key] = w
  end
end
