-- Expires a message of the main side: moves it to the dead-letter queue if the entity keeps expired messages there,
-- otherwise discards it.
-- @use bury discard
local function expire(p, member, e)
  if p.dead then
    bury(p, member, e, 'T')
  else
    discard(p, member, e)
    if p.noted then
      p.noted[#p.noted + 1] = 'x' .. member
    end
  end
end
