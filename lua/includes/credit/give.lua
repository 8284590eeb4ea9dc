-- Gives chosen messages to a receiver: the gift is the next of its prefix, and is a lease. The messages are locked, or
-- deleted if the receiver wants that. `pushed` is the number of bytes that were pushed.
-- @use delete_received flush lock_messages number_runs open_credit write_lease
local function give(p, w, side, chosen, pushed)
  local c, n = open_credit(p), chosen.n
  if w.delete then
    delete_received(p, chosen.names, chosen.entries)
  else
    lock_messages(p, chosen, side.locked)
    write_lease(p, chosen.token, p.logical + p.lock, n, number_runs(side.prefix, chosen.numbers))
    p.granted = chosen.fence
    p.changed.granted = p.granted
  end
  if p.noted then
    p.given = p.given or {}
    p.given[#p.given + 1] = { letter = w.delete and 'k' or 'g', names = chosen.names, records = chosen.records }
  end
  flush(p)
  w.serial, w.messages, w.bytes = w.serial + 1, w.messages + n, w.bytes + chosen.size
  w.unseen[#w.unseen + 1] = { serial = w.serial, time = p.now, pushed = pushed, messages = w.messages, bytes = w.bytes }
  c.turn = c.turn + 1
  w.turn, w.forget_at = c.turn, math.max(w.forget_at, p.now + 2 * p.lock + 10000)
  if w.once then
    w.limit = w.messages
  end
  c.dirty[w.key] = w
end
