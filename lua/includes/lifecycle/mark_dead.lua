-- Changes the entry of a message to the entry of a dead letter. `member` is its name before it died, and stays known.
-- @use never_text
local function mark_dead(e, member, reason)
  if e.record == '' then
    e.record = member
  elseif e.record ~= member then
    e.before = member
  end
  e.reason, e.expires, e.level, e.home, e.mark = reason, NEVER_TEXT, '0', 'a', ' '
end
