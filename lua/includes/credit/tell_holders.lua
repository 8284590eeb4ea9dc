-- Tells the holders of empty sessions that yield, if sessions are free and nobody can take them: no open grant of free
-- sessions answers. One holder is told for each of these sessions: the caller in the reply, the others in a push, but
-- each only once until it gets messages again.
-- @use open_credit
-- @use count_held ready_count push_to ranked_keys rank_of waiting_sessions words_of
local function tell_holders(p)
  local c = open_credit(p)
  if not c.open and not next(c.dirty) then
    return
  end
  local lists, callers = ranked_keys(p), {}
  local left = #lists[5] > 0 and waiting_sessions(p) or 0
  if left == 0 then
    return
  end
  c.rest = true -- the next call looks again, because a holder may not answer

  local function is_idle(w)
    return w and w.yields and rank_of(c, w, p.now) and count_held(p, w.session) == 0 and ready_count(p, w) == 0
  end

  for _, g in ipairs(p.granting or {}) do
    local w = g.w
    if w and w.session then
      callers[w] = true
      if is_idle(w) then
        g.flags = g.flags .. 'w'
        left, w.marked, c.dirty[w.key] = left - (w.marked and 0 or 1), true, w
      end
    end
  end
  words_of(p, lists[5])
  for i = 1, #lists[5] do
    local w = c.words[lists[5][i]]
    left = left - (w and not callers[w] and w.told > 0 and w.marked and w.yields and 1 or 0)
  end
  for i = 1, #lists[5] do
    local w = c.words[lists[5][i]]
    if left > 0 and w and not callers[w] and w.told == 0 and not w.marked and is_idle(w) and push_to(p, w, nil, true) then
      left, w.marked = left - 1, true
    end
  end
end
