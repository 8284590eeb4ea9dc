-- Does the work of credit at the end of a call: gives ready messages to open grants, chooses and tells who keeps the
-- due time, completes the answers to the grants of the call, and writes the words.
-- @use distribute keep_due_time open_credit rank_of tell_holders inside
local function serve_credit(p)
  local c = open_credit(p)

  -- Write the words that the call has changed, their ranks, and the field `credit`.
  local function write()
    local texts, ranks, gone = {}, {}, {}
    for key, w in pairs(c.dirty) do
      local unseen = {}
      for i = 1, #w.unseen do
        local gift = w.unseen[i]
        unseen[i] = string.format('%.0f:%.0f:%.0f:%.0f:%.0f', gift.serial, gift.time, gift.pushed, gift.messages, gift.bytes)
      end
      local flags = (w.once and 'o' or '') .. (w.announced and 'i' or '') .. (w.delete and 'd' or '') .. (w.suspects and 's' or '')
        .. (w.passed and 'p' or '') .. (w.late and 'u' or '') .. (w.yields and 'y' or '') .. (w.marked and 'm' or '')
        .. (w.careful and 'c' or '')
      local more = {}
      for i = 1, w.gifts and #w.gifts or 0 do
        local gift = w.gifts[i]
        more[i] = string.format('%s:%.0f:%s', gift.prefix, gift.serial, gift.runs)
      end
      if w.first > 0 then
        more[1] = string.format('%.0f:%.0f', w.first, w.first_bytes)
      end
      texts[#texts + 1] = key
      texts[#texts + 1] = string.format('%s %.0f %s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s %.0f %.0f %.0f %.0f %.0f %.0f %s %s',
        w.channel, w.number, w.prefix, w.serial, w.messages, w.bytes, w.seen, w.begun, w.hands, w.callers, w.limit, w.most_bytes,
        flags, w.epoch, w.ends, w.open_until, w.forget_at, w.turn, w.told, table.concat(unseen, ','),
        table.concat(more, ';'))
      local rank = rank_of(c, w, p.now)
      if rank and rank ~= w.ranked then
        ranks[#ranks + 1], ranks[#ranks + 2] = rank, key
      elseif not rank and w.ranked then
        gone[#gone + 1] = key
      end
      if c.count then
        c.count = c.count + (rank and not w.ranked and 1 or 0) - (w.ranked and not rank and 1 or 0)
      end
      c.open, w.ranked = c.open or rank ~= nil, rank
    end
    c.dirty = {}
    if #texts > 0 then
      redis.call('HSET', p.words, unpack(texts))
    end
    if #gone > 0 then
      redis.call('ZREM', p.grants, unpack(gone))
    end
    if #ranks > 0 then
      redis.call('ZADD', p.grants, unpack(ranks))
    end
    if c.count then
      c.open = c.count > 0
    end
    local text = string.format('%.0f %.0f %.0f %s%s%s %.0f %.0f %.0f %.0f %.0f %s %s %d ', c.turn, c.epochs, c.ends, c.open and 1 or 0,
      c.rest and 1 or 0, c.untold and 1 or 0, c.keeper_at, c.keeper_till, c.deputy_at, c.deputy_till, c.asked,
      c.keeper_client, c.deputy_client, #c.keeper) .. c.keeper .. c.deputy
    if text ~= p.credit then
      p.credit, p.changed.credit = text, text
    end
  end

  local rest = c.rest
  if (p.moved or rest) and (c.open or next(c.dirty)) or c.untold then
    distribute(p)
  end
  if p.index and (p.moved or rest or p.granting) then
    tell_holders(p)
  end
  keep_due_time(p)
  for _, g in ipairs(p.granting or {}) do
    g.answer[1] = string.format('%s %s %.0f %.0f %.0f %.0f %s %s ', g.letter, g.w and g.w.prefix or '', g.serial, g.messages, g.bytes,
      g.w and g.w.limit or 0, g.flags, g.due and string.format('%.0f', g.due) or '') .. g.refusal
  end
  write()
end
