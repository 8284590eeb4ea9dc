-- Returns a whole number as text, and remembers it: a number that is often written, or the first digits of others.
-- @remember 1024
local function formatted(number)
  return string.format('%.0f', number)
end
