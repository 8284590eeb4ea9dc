-- Ends the lock of a moved message of a pass at the time `at`.
-- @use note_dead note_ready state_after_lock
local function lapse_message(p, o, m, at)
  local fate = state_after_lock(p, m.side, m.e, true, at)
  if fate == 'dead' then
    note_dead(o, m, 'M')
  elseif fate == 'deferred' then
    m.is = 'deferred'
  else
    note_ready(p, o, m, at)
  end
end
