-- Tells the holders of empty sessions that yield, if sessions are free and nobody can take them: no open grant of free
-- sessions answers. One holder is told for each of these sessions: the caller in the reply, the others in a push, but
-- each only once until it gets messages again.
-- @use open_credit
-- @use count_held open_grants ready_count push_to rank_of waiting_sessions
local function tell_holders(p)
  local c = open_credit(p)
  if not c.open and not next(c.dirty) then
    return
  end
  local next_grant, count = open_grants(p, 5)
  local left = count > 0 and waiting_sessions(p) or 0
  if left == 0 then
    return
  end
  c.rest = true -- the next call looks again, because a holder may not answer

  local callers, known = {}, {}

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
  for i = 1, 32 do
    local w = next_grant(33 - i)
    known[i] = w
    left = left - (w and not callers[w] and w.told > 0 and w.marked and w.yields and 1 or 0)
  end
  for i = 1, #known do
    local w = known[i]
    if left > 0 and not callers[w] and w.told == 0 and not w.marked and is_idle(w) and push_to(p, w, nil, true) then
      left, w.marked = left - 1, true
    end
  end
end
