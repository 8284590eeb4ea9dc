-- Returns a whole number in base 36, with digits and lower-case letters.
local function base36(number)
  local text = ''
  repeat
    local digit = number % 36
    text = string.char(digit < 10 and 48 + digit or 87 + digit) .. text
    number = (number - digit) / 36
  until number == 0
  return text
end
