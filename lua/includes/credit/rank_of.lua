-- Returns the rank of a word among the open grants, or nil if it has none. A lower rank is served first. Each source
-- has a range of 2^50 ranks; the range 0 has the receivers that were not told of an end yet. All held sessions have two
-- ranges: those whose holder may let go come first. In a range come first the grants without unseen gifts, among them
-- those with waiting callers, and among these the one served longest ago.
-- @use may_let_go place_of ranks
local function rank_of(c, w, now)
  if w.limit <= w.messages and not w.announced or w.passed or w.late or w.epoch ~= c.epochs or w.open_until <= now then
    return nil
  end
  return place_of[w.source] * RANKS.source + (w.session and not may_let_go(w) and RANKS.source or 0)
    + (#w.unseen > 0 and RANKS.unseen or 0) + (w.callers > w.messages and 0 or RANKS.stock) + w.turn
end
