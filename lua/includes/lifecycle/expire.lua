-- Expires a message of the main side: moves it to the dead-letter queue if the entity is set so, otherwise discards it.
-- @use bury discard
local function expire(p, member, e)
  if p.dead then
    bury(p, member, e, 'T')
  else
    discard(p, member, e)
  end
end
