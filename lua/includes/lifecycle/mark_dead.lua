-- The entry of a message becomes that of a dead letter.
local function mark_dead(e, member, reason)
  if e.record == '' then
    e.record = member
  end
  e.reason, e.expires, e.level, e.home = reason, '9999999999999', '0', 'a'
end
