-- Returns the name of the message that an index member is for, which is its number as text, and the number.
local function index_name(text)
  local number = tonumber(string.sub(text, -12, -7), 16) * 16777216 + tonumber(string.sub(text, -6), 16)
  return string.format('%.0f', number), number
end
