-- Ends the lock of a moved message of a pass at the time `at`. With `counted`, the delivery counts as failed. A message
-- becomes a suspect with the second such delivery that no settlement has ended, or with the first one if the delivery
-- limit is 2 or less: its handler may end the process that runs it. A dead letter says how many such deliveries it had.
-- @use note_dead note_ready state_after_lock
local function lapse_message(p, o, m, at, counted)
  local e, lapses = m.e, nil
  if counted then
    lapses = 1 + (e.mark == ' ' and 0 or e.mark == '0' and 1 or math.min(string.byte(e.mark) - 48, 13))
    e.mark = lapses == 1 and p.deliveries <= 2 and '0' or string.char(48 + lapses)
  end
  local fate = state_after_lock(p, m.side, e, counted, at)
  if fate == 'dead' then
    note_dead(o, m, string.char(48 + lapses))
  elseif fate == 'deferred' then
    m.is = 'deferred'
  else
    note_ready(p, o, m, at)
    o.suspects = o.suspects or m.is == 'ready' and e.mark ~= ' ' and e.mark ~= '1'
  end
end
