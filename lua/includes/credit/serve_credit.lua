-- Does the work of credit at the end of a call: gives ready messages to open grants, chooses and tells who keeps the
-- due time, completes the answers to the grants of the call, and writes the words.
-- @use digits number_text write_many
-- @use distribute keep_due_time open_credit rank_of roused_holders tell_holders inside
local function serve_credit(p)
  local c = open_credit(p)
  local rest, roused, there = c.rest, p.roused, c.open or next(c.dirty)
  if (p.moved or rest) and there or c.untold then
    distribute(p)
  elseif roused and there then
    roused_holders(p)
  end
  if p.index and (p.moved or rest or p.granting or roused) then
    tell_holders(p)
  end
  keep_due_time(p)
  for _, g in ipairs(p.granting or {}) do
    g.answer[1] = g.letter .. ' ' .. (g.w and g.w.prefix or '') .. ' ' .. number_text[g.serial]
      .. ' ' .. number_text[g.messages] .. ' ' .. number_text[g.bytes] .. ' ' .. number_text[g.w and g.w.limit or 0]
      .. ' ' .. g.flags .. ' ' .. (g.due and number_text[g.due] or '') .. ' ' .. g.refusal
  end

  -- Write the words that the call has changed, their ranks, and the field `credit`.
  local texts, ranks, gone = {}, {}, {}
  for key, w in pairs(c.dirty) do
    local unseen = {}
    for i = 1, #w.unseen do
      local gift = w.unseen[i]
      unseen[i] = number_text[gift.serial] .. ':' .. number_text[gift.time] .. ':' .. number_text[gift.pushed]
        .. ':' .. number_text[gift.messages] .. ':' .. number_text[gift.bytes]
    end
    local flags = (w.once and 'o' or '') .. (w.announced and 'i' or '') .. (w.delete and 'd' or '')
      .. (w.suspects and 's' or '') .. (w.passed and 'p' or '') .. (w.late and 'u' or '')
      .. (w.yields and 'y' or '') .. (w.marked and 'm' or '') .. (w.careful and 'c' or '') .. (w.empty and 'e' or '')
    local more = w.first > 0 and number_text[w.first] .. ':' .. number_text[w.first_bytes] or ''
    if w.gifts then
      local gifts = {}
      for i = 1, #w.gifts do
        local gift = w.gifts[i]
        gifts[i] = gift.prefix .. ':' .. number_text[gift.serial] .. ':' .. gift.runs
      end
      more = table.concat(gifts, ';')
    end
    texts[#texts + 1] = key
    texts[#texts + 1] = w.channel .. ' ' .. number_text[w.number] .. ' ' .. w.prefix .. ' ' .. number_text[w.serial]
      .. ' ' .. number_text[w.messages] .. ' ' .. number_text[w.bytes] .. ' ' .. number_text[w.seen]
      .. ' ' .. number_text[w.begun] .. ' ' .. number_text[w.hands] .. ' ' .. number_text[w.callers]
      .. ' ' .. number_text[w.limit] .. ' ' .. number_text[w.most_bytes] .. ' ' .. flags .. ' ' .. number_text[w.epoch]
      .. ' ' .. number_text[w.ends] .. ' ' .. number_text[w.open_until] .. ' ' .. number_text[w.forget_at]
      .. ' ' .. number_text[w.turn] .. ' ' .. number_text[w.told] .. ' ' .. table.concat(unseen, ',') .. ' ' .. more
    local rank = rank_of(c, w, p.now)
    if rank and rank ~= w.ranked then
      ranks[#ranks + 1], ranks[#ranks + 2] = digits(rank), key
    elseif not rank and w.ranked then
      gone[#gone + 1] = key
    end
    if c.count then
      c.count = c.count + (rank and not w.ranked and 1 or 0) - (w.ranked and not rank and 1 or 0)
    end
    c.open, w.ranked = c.open or rank ~= nil, rank
  end
  c.dirty = {}
  write_many('HSET', p.words, texts)
  write_many('ZREM', p.grants, gone)
  write_many('ZADD', p.grants, ranks)
  if c.count then
    c.open = c.count > 0
  end
  local text = number_text[c.turn] .. ' ' .. number_text[c.keeper_till] .. ' ' .. number_text[c.deputy_till]
    .. ' ' .. number_text[c.epochs] .. ' ' .. number_text[c.ends]
    .. (c.open and ' 1' or ' 0') .. (c.rest and '1' or '0') .. (c.untold and '1 ' or '0 ')
    .. number_text[c.keeper_at] .. ' ' .. number_text[c.deputy_at] .. ' ' .. number_text[c.asked]
    .. ' ' .. c.keeper_client .. ' ' .. c.deputy_client .. ' ' .. number_text[#c.keeper] .. ' ' .. c.keeper .. c.deputy
  if text ~= p.credit then
    p.credit, p.changed.credit = text, text
  end
end
