-- Returns a whole number as text. Finding its text again takes a small part of the time of making it, and a call writes
-- most numbers more than once, or has read them.
-- @use digits
-- @remember 1024
local function number_text(number)
  return digits(number)
end
