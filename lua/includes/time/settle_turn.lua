-- Makes a session free at the time `at` if it has messages to receive, unless it is locked or blocked. A session
-- without messages has no turn.
local function settle_turn(turn, at)
  if turn.does == 'none' and turn.ready > 0 then
    turn.does, turn.since, turn.changed = 'free', at, true
  elseif turn.does == 'free' and turn.ready == 0 then
    turn.does, turn.since, turn.changed = 'none', nil, true
  end
end
