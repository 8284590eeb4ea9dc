-- Chooses the messages of the next gift to a receiver. Returns them, with the token and the fence of the gift; and the
-- gift as the reply or the push shows it. Nothing is written yet but dead letters, if records are lost. From `first` to
-- `last` in `p.unawaited` are the expiries of the messages.
-- @use choose_messages gift_token set_aside
local function choose_gift(p, w, side, most, room, pushes)
  local token, first = gift_token(w.prefix, w.serial + 1), #p.unawaited + 1
  local chosen = choose_messages(p, side, token, most, room, nil, pushes, w.suspects)
  chosen.token, chosen.fence, chosen.first, chosen.last = token, w.delete and 0 or p.granted + 1, first, #p.unawaited
  if chosen.lost then
    set_aside(p, chosen.lost, chosen.lost_entries, nil, 'a')
  end
  local head = string.format('%s %.0f %.0f %.0f %.0f %.0f', w.prefix, w.serial + 1, w.messages + chosen.n,
    w.bytes + chosen.size, w.delete and 0 or p.lock, chosen.fence)
  return chosen, { head, chosen.names, chosen.records, chosen.extras }
end
