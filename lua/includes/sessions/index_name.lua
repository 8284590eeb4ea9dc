-- Returns the message of an index member: its name (the number as text) and its number.
local function index_name(text)
  local number = tonumber(string.sub(text, -12, -7), 16) * 16777216 + tonumber(string.sub(text, -6), 16)
  return string.format('%.0f', number), number
end
