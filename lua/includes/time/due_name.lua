-- Returns the name of a message's event in `due`: a letter for what happens, then the message's number in twelve
-- hexadecimal digits. The letter of its side precedes the number of a dead letter. The order of these names is the
-- order of events of one instant: by letter, and then by number.
--
--   a a scheduled message is activated   b the block of a session ends (the session's name follows)   d a delay is over
--   e an active message expires
-- @use index_text
local function due_name(letter, member)
  local number = tonumber(member)
  if number then
    return letter .. index_text(number)
  end
  return letter .. string.sub(member, 1, 1) .. index_text(tonumber(string.sub(member, 2)))
end
