-- The name of the message that a member of the index is for, which is its number, and the number.
local function index_name(text)
  local number = tonumber(string.sub(text, -12, -7), 16) * 16777216 + tonumber(string.sub(text, -6), 16)
  return string.format('%.0f', number), number
end
