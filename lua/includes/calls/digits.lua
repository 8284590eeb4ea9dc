-- Returns a whole number as text, as number_text does, but does not remember it: a call with many messages would fill
-- the memory. Formatting a number takes three times as long as joining its first digits, which are often known, and its
-- last three.
-- @use formatted three_digits
local function digits(number)
  if number < 1000 then
    return formatted[number]
  end
  local last = number % 1000
  return formatted[(number - last) / 1000] .. three_digits[last]
end
