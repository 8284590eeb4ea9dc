-- Changes the entry of a message to the entry of a dead letter.
-- @use never_text
local function mark_dead(e, member, reason)
  if e.record == '' then
    e.record = member
  end
  e.reason, e.expires, e.level, e.home = reason, NEVER_TEXT, '0', 'a'
end
