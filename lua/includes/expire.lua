-- A message of the main side whose time has come goes to the dead-letter queue, where the entity says so, or for good.
-- @use bury
-- @use drop
local function expire(p, member, e)
  if p.dead then
    bury(p, member, e, 'T')
    return
  end
  p.taken[#p.taken + 1] = member
  p.forgotten[#p.forgotten + 1] = member
  drop(p, e.record == '' and member or e.record, e.size, #e.changes)
end
