-- Makes a moved message of a pass a dead letter.
-- @use mark_dead
local function note_dead(o, m, reason)
  mark_dead(m.e, m.name, reason)
  m.is = 'dead'
  o.dead[#o.dead + 1] = m
end
