-- Returns the turn of a session in a pass over due work (see compute_due), which each event updates. `ready` counts the
-- messages that can be received.
-- @use turns
local function session_turn(p, o, name)
  local turn = o.turns[name]
  if not turn then
    local score = tonumber(redis.call('ZSCORE', p.turns, 's' .. name) or -1)
    turn = { ready = redis.call('ZLEXCOUNT', p.index, '[' .. name .. '\255a', '(' .. name .. '\255b'), does = 'none' }
    if score >= TURNS.blocked then
      turn.does = 'blocked'
    elseif score >= TURNS.locked then
      turn.does = 'locked'
    elseif score >= 0 then
      turn.does, turn.since = 'free', score - TURNS.free
    end
    o.turns[name] = turn
  end
  return turn
end
