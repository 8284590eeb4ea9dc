-- A message of the main side whose time has come goes to the dead-letter queue, where the entity says so, or for good.
-- @use bury discard
local function expire(p, member, e)
  if p.dead then
    bury(p, member, e, 'T')
  else
    discard(p, member, e)
  end
end
