-- Returns a number below 1,000 as text with three digits.
-- @remember 1000
local function three_digits(number)
  return string.format('%03d', number)
end
