-- Adds `by` to the number of messages that can be received in the session of a message, if the pass updates turns.
-- @use session_turn settle_turn
local function supply_turn(p, o, m, by, at)
  if o.turning and m.session then
    local turn = session_turn(p, o, m.session)
    turn.ready = turn.ready + by
    settle_turn(turn, at)
  end
end
