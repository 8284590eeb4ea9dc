-- Returns whether a receiver wants messages, or news of them, and answers. A receiver that has not answered interest, or
-- not reported a gift, for a second is passed over until its next call.
-- @use open_credit rank_of
local function is_eligible(p, w)
  local c = open_credit(p)
  local patience = p.now - 1000
  if w.told > 0 and w.told < patience then
    w.told, w.passed = 0, true
    c.dirty[w.key] = w
  end
  if w.open_until <= p.now and (w.limit > w.messages or w.announced) then
    w.limit, w.announced = math.min(w.limit, w.messages), false
    c.dirty[w.key] = w
  end
  if not w.late and w.unseen[1] and w.unseen[1].time < patience then
    w.late = true
    c.dirty[w.key] = w
  end
  return rank_of(c, w, p.now) ~= nil
end
