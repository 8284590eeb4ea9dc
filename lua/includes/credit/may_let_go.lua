-- Returns whether the holder of a session can be told that others wait, or was told and has not answered: it yields,
-- its session is empty, and it is not told a second time until it gets messages again.
local function may_let_go(w)
  return w.yields and w.empty and w.marked == (w.told > 0)
end
