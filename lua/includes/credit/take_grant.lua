-- Takes a grant, if it is newer than those before it and the partition knows its prefix. Returns a letter: t taken, k
-- known (the partition has had it, or a later one), f forgotten (the partition does not know the receiver's prefix), r
-- refused; and the word of the receiver, or nil if it is forgotten or its session is lost; and why it was refused; and
-- the gifts under earlier prefixes, if it was taken with a new prefix.
-- @use begin_word gifts_again open_credit session_lock_end words_of
local function take_grant(p, g)
  local c = open_credit(p)
  if g.run ~= string.sub(p.run, 1, 8) then
    return 'f'
  end

  if g.session and not p.index then
    return 'r', nil, 'SESSIONS none'
  elseif g.session and not session_lock_end(p, g.session, g.receiver) then
    return 'r', nil, 'LOST session'
  end

  words_of(p, { g.key })
  local w, refusal = c.words[g.key], nil -- why nobody may receive from the source now, or nil
  if p.status == 'ReceiveDisabled' or p.status == 'Disabled' then
    refusal = 'DISABLED ' .. p.status
  elseif g.source == '' or g.source == 'next' or g.session then
    refusal = g.source == '' and p.index and 'SESSIONS required'
      or g.source == 'next' and not p.index and 'SESSIONS none'
      or p.forwards and 'FORWARDS receive' or p.reserved and 'RESERVED receive' or nil
  end
  if w and not w.session and w.forget_at <= p.now and w.limit <= w.messages and not w.announced and not w.untold then
    redis.call('HDEL', p.words, w.prefix)
    w = nil
  end
  local reports = { { prefix = g.prefix, seen = g.seen, begun = g.begun }, unpack(g.retired) }
  for i = w and w.session and #w.gifts or 0, 1, -1 do -- forget the gifts of a session that were seen
    for j = 1, #reports do
      if w.gifts[i] and w.gifts[i].prefix == reports[j].prefix and w.gifts[i].serial <= reports[j].seen then
        table.remove(w.gifts, i)
      end
    end
  end
  if w and w.epoch == c.epochs then
    for i = 1, #reports do
      local report = reports[i]
      if report.prefix == w.prefix then
        w.seen = math.min(math.max(w.seen, report.seen), w.serial)
        w.begun = math.max(w.begun, report.begun)
      end
    end
    while w.unseen[1] and w.unseen[1].serial <= w.seen do
      table.remove(w.unseen, 1)
    end
    w.late, w.untold, c.dirty[w.key] = false, false, w
    if g.number <= w.number then
      if g.number == w.number and not g.now and not refusal then
        w.announced = g.announced -- the news may have been in a reply that was lost
      end
      return 'k', w
    elseif g.prefix ~= w.prefix and not g.begins then
      return 'f'
    end
  elseif not g.begins or w and (g.number <= w.number or g.prefix == w.prefix) then
    return 'f'
  else
    if not g.session then -- the word of a session ends with its lock
      begin_word(p, g.key)
    end
    w = {
      key = g.key, source = g.source, session = g.session, prefix = w and w.prefix or '', begun = w and w.begun,
      hands = w and w.hands, turn = 0, ranked = w and w.ranked, gifts = g.session and (w and w.gifts or {}),
      marked = false, empty = false,
    }
    c.words[g.key] = w
  end
  local retired = nil
  if g.prefix ~= w.prefix then
    if not w.session then
      redis.call('HSET', p.words, g.prefix, '. . ' .. w.key)
    end
    if w.prefix ~= '' and not w.session then -- `reach` reads it, as long as leases with this prefix may be there
      redis.call('HSET', p.words, w.prefix, string.format('%.0f %.0f ', w.begun, w.hands) .. w.key)
      redis.call('ZADD', p.kept, p.now + 2 * (p.lock or 0) + 10000, w.prefix)
    end
    local messages, bytes = 0, 0
    retired = {}
    w.prefix, w.serial, w.seen, w.begun, w.unseen, w.late = g.prefix, 0, 0, 0, {}, false
    for i = 1, #g.retired do
      local gifts, count, size = gifts_again(p, g.retired[i].prefix, g.retired[i].seen, w)
      retired[i], messages, bytes = gifts, messages + count, bytes + size
    end
    w.messages, w.bytes = g.messages + messages, g.bytes + bytes
  end
  w.channel, w.number, w.epoch, w.ends = g.channel, g.number, c.epochs, c.ends
  w.callers, w.limit, w.most_bytes, w.hands = g.callers, g.limit, g.most_bytes, g.hands
  w.once, w.announced, w.delete, w.suspects = g.once, g.announced, g.delete, g.suspects
  w.first, w.first_bytes, w.yields, w.careful = g.first, g.first_bytes, g.yields, g.careful
  w.told, w.passed, w.open_until, w.forget_at = 0, false, p.now + 300000, math.max(w.forget_at or 0, p.now + 70000)
  c.dirty[w.key] = w
  if refusal then
    w.limit, w.announced = math.min(w.limit, w.messages), false
  end
  return refusal and 'r' or 't', w, refusal, retired
end
