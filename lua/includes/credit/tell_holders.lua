-- Tells the holders of empty sessions that yield, if sessions are free and nobody can take them: no open grant of free
-- sessions answers. One holder is told for each of these sessions: the caller in the reply, the others in a push, but
-- each only once until it gets messages again. A call looks at 32 holders that can be told or have not answered: they
-- have the first ranks.
-- @use open_credit
-- @use may_let_go open_grants push_to rank_of waiting_sessions
local function tell_holders(p)
  local c = open_credit(p)
  local left = (c.open or next(c.dirty)) and waiting_sessions(p) or 0
  if left == 0 then
    return
  end

  local callers, known = {}, {}
  for _, g in ipairs(p.granting or {}) do
    local w = g.w
    if w and w.session then
      callers[w] = true
      if w.yields and w.empty and rank_of(c, w, p.now) then
        g.flags = g.flags .. 'w'
        left, w.marked, c.dirty[w.key] = left - (w.marked and 0 or 1), true, w
      end
    end
  end
  local next_grant = open_grants(p, 5)
  for i = 1, 32 do
    local w = next_grant(i)
    if not w or not may_let_go(w) then
      break
    end
    c.rest = true -- the next call looks again, because a holder may not answer
    known[i] = w
    left = left - (w.told > 0 and not callers[w] and 1 or 0)
  end
  for i = 1, #known do
    local w = known[i]
    if left > 0 and not callers[w] and w.told == 0 and push_to(p, w, nil, true) then
      left, w.marked = left - 1, true
    end
  end
end
