-- Ends the lock of a moved message of a pass at the time `at`. With `counted`, the delivery counts as failed. A message
-- becomes a suspect with the second such delivery that no settlement has ended, or with the first one if the delivery
-- limit is 2 or less: its handler may end the process that runs it.
-- @use note_dead note_ready state_after_lock
local function lapse_message(p, o, m, at, counted)
  if counted then
    m.e.mark = (m.e.mark ~= ' ' or p.deliveries <= 2) and '2' or '1'
  end
  local fate = state_after_lock(p, m.side, m.e, counted, at)
  if fate == 'dead' then
    note_dead(o, m, 'L')
  elseif fate == 'deferred' then
    m.is = 'deferred'
  else
    note_ready(p, o, m, at)
    o.suspects = o.suspects or m.is == 'ready' and m.e.mark == '2'
  end
end
