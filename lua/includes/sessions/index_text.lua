-- A number as the index has it: in twelve hexadecimal digits, so that texts are in the order of numbers. In two halves, because a
-- server of 32 bits counts no further in whole numbers.
local function index_text(number)
  local low = number % 16777216
  return string.format('%06x%06x', (number - low) / 16777216, low)
end
