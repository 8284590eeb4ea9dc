-- How an event of a message is named in `due`: by a letter for what happens, and its number in twelve hexadecimal digits, behind a
-- `d` on the dead side. So events of one instant are in the order of letters, and then of numbers.
--
--   a a scheduled message is activated   b a session is blocked no longer (this is followed by its name)   d a delay is over
--   e an active message expires
-- @use index_text
local function due_name(letter, member)
  if string.byte(member) == 100 then
    return letter .. 'd' .. index_text(tonumber(string.sub(member, 2)))
  end
  return letter .. index_text(tonumber(member))
end
