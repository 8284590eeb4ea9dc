-- Returns the name of a message's event in `due`: a letter for what happens, then the message's number in twelve
-- hexadecimal digits. A `d` precedes the number on the dead-letter side. The order of these names is the order of
-- events of one instant: by letter, and then by number.
--
--   a a scheduled message is activated   b the block of a session ends (the session's name follows)   d a delay is over
--   e an active message expires
-- @use index_text
local function due_name(letter, member)
  if string.byte(member) == 100 then
    return letter .. 'd' .. index_text(tonumber(string.sub(member, 2)))
  end
  return letter .. index_text(tonumber(member))
end
