-- Ends the block of a session at the time `at`.
-- @use session_turn settle_turn
local function unblock_session(p, o, name, at)
  o.unblocked[#o.unblocked + 1] = name
  if o.turning then
    local turn = session_turn(p, o, name)
    turn.unblocked = true
    if turn.does == 'blocked' then
      turn.changed, turn.does = true, 'none'
      settle_turn(turn, at)
    end
  end
end
