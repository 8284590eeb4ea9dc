-- Chooses the messages of the next gift to a receiver, or the session that has been free for longest, with its first
-- messages. Returns them, with the token and the fence of the gift; and the gift as the reply or the push shows it.
-- Nothing is written yet but dead letters, if records are lost. From `first` to `last` in `p.unawaited` are the
-- expiries of the messages. The messages of a session get the token of its lock, which is not there yet if they are the
-- first ones. With a session, `held` is the word of its messages, and `some` are the first ones, or nil.
-- @use choose_messages gift_letters number_text open_credit session_lock_end session_messages set_aside turns
local function choose_gift(p, w, side, most, room, pushes)
  local session, members, first, c = w.session, nil, #p.unawaited + 1, open_credit(p)
  local token = session and string.sub(w.key, 1, 11) or w.prefix .. gift_letters[w.serial + 1]
  if w.source == 'next' then
    local found = redis.call('ZRANGE', p.turns, TURNS.free, TURNS.locked - 1, 'BYSCORE', 'LIMIT', 0, 1)[1]
    if not found then
      return { n = 0, emptied = true }
    end
    session = string.sub(found, 2)
    local held = {
      key = token .. ' =' .. session, source = '=' .. session, session = session, channel = w.channel, number = 0,
      prefix = w.prefix, serial = 0, messages = 0, bytes = 0, seen = 0, begun = 0, hands = w.hands, callers = 0, limit = 0,
      most_bytes = 0, epoch = c.epochs, ends = c.ends, open_until = 0, forget_at = 0, turn = 0, told = 0, delete = w.delete,
      suspects = true, careful = w.careful, first = 0, first_bytes = 0, unseen = {}, gifts = {},
    }
    local some, gift = nil, nil
    if w.first > 0 and room > 0 then
      some, gift = choose_gift(p, held, side, w.first, room, pushes)
      some = some.n > 0 and some or nil
    end
    local head = w.prefix .. ' ' .. number_text[w.serial + 1] .. ' ' .. number_text[w.messages + 1]
      .. ' ' .. number_text[w.bytes] .. ' ' .. number_text[p.lock] .. ' ' .. number_text[p.granted + 1]
    return {
      n = 1, size = some and some.size or 0, session = session, token = token, held = held, some = some, first = first,
      last = #p.unawaited,
    }, { head, session, some and gift or nil }
  end
  if session then
    function members(seen, wanted)
      return session_messages(p, session, 'a', 0, seen, wanted)
    end
  end
  local chosen = choose_messages(p, side, token, most, room, members, pushes, w.suspects)
  local till = session and session_lock_end(p, session, token)
  chosen.token, chosen.first, chosen.last = token, first, #p.unawaited
  chosen.fence = (w.delete or session) and 0 or p.granted + 1
  if chosen.lost then
    set_aside(p, chosen.lost, chosen.lost_entries, session, 'a')
  end
  local head = w.prefix .. ' ' .. number_text[w.serial + 1] .. ' ' .. number_text[w.messages + chosen.n]
    .. ' ' .. number_text[w.bytes + chosen.size]
    .. ' ' .. number_text[w.delete and 0 or till and till - p.logical or p.lock] .. ' ' .. number_text[chosen.fence]
  return chosen, { head, chosen.names, chosen.records, chosen.extras }
end
