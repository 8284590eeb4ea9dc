-- Returns a whole number as text. Formatting a number takes five times as long as finding its text again, and a call
-- writes most numbers more than once, or has read them.
-- @remember 1024
local function number_text(number)
  return string.format('%.0f', number)
end
