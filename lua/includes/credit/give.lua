-- Gives what choose_gift has chosen to a receiver: the gift is the next of its prefix. Messages are locked, or deleted
-- if the receiver wants that. They are a lease, except in a session, where they are under the lock of the session. A
-- session is locked, and the word of its messages begins, with the first ones. `pushed` is the number of bytes in the
-- push. With `more`, the caller gives more sessions and then flushes: they have no messages in common.
-- @use flush index_add index_remove lock_messages next_fence number_runs number_text open_credit turns write_lease
-- @use discard entry inside
local function give(p, w, side, chosen, pushed, more)
  local c, n, numbers, held = open_credit(p), chosen.n, chosen.numbers, chosen.held
  if held then
    next_fence(p)
    write_lease(p, chosen.token, p.logical + p.lock, 0, '@' .. chosen.session)
    redis.call('ZADD', p.turns, TURNS.locked, 's' .. chosen.session)
    redis.call('HSET', p.states, '!' .. chosen.session, chosen.token)
    c.words[held.key], c.dirty[held.key] = held, held
  end
  for i = 1, w.session and n or 0 do
    index_remove(p, w.session, 'a', numbers[i])
    if not w.delete then
      index_add(p, w.session, 'h', numbers[i])
    end
  end
  if w.delete and not held then
    for i = 1, n do
      discard(p, chosen.names[i], entry(chosen.entries[i]))
    end
  elseif w.session then
    lock_messages(p, chosen, side.held)
    w.gifts[#w.gifts + 1] = { prefix = w.prefix, serial = w.serial + 1, runs = number_runs('', numbers) }
  elseif not held then
    lock_messages(p, chosen, side.locked)
    write_lease(p, chosen.token, p.logical + p.lock, n, number_runs(side.prefix, numbers))
    p.granted, p.changed.granted = chosen.fence, number_text[chosen.fence]
  end
  if p.noted and not held then
    p.given = p.given or {}
    p.given[#p.given + 1] = { letter = w.delete and 'k' or 'g', names = chosen.names, records = chosen.records }
  end
  if not more then
    flush(p)
  end
  w.serial, w.messages, w.bytes = w.serial + 1, w.messages + n, w.bytes + (held and 0 or chosen.size)
  w.unseen[#w.unseen + 1] = { serial = w.serial, time = p.now, pushed = pushed, messages = w.messages, bytes = w.bytes }
  c.turn = c.turn + 1
  w.turn, w.forget_at, w.marked = c.turn, math.max(w.forget_at, p.now + 2 * p.lock + 10000), false
  if w.once then
    w.limit = w.messages
  end
  c.dirty[w.key] = w
  if held and chosen.some then
    held.limit, held.callers = chosen.some.n, chosen.some.n
    give(p, held, side, chosen.some, 0, more)
  end
end
