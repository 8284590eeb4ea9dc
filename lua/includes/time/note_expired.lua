-- Makes a moved message of a pass expire at the time `at`.
-- @use note_dead supply_turn
local function note_expired(p, o, m, at)
  if m.is == 'ready' or m.was == 'e' then
    supply_turn(p, o, m, -1, at)
  end
  if p.dead then
    note_dead(o, m, 'T')
  else
    m.is = 'gone'
  end
end
