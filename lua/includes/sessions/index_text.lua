-- Returns a number in the form of the index: twelve hexadecimal digits, so that the order of texts is the order of
-- numbers. It is written in two halves, because a 32-bit server cannot format larger whole numbers.
local function index_text(number)
  local low = number % 16777216
  return string.format('%06x%06x', (number - low) / 16777216, low)
end
