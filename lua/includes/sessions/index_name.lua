-- Returns the name of the message of an index member: its number as text.
local function index_name(text)
  local number = tonumber(string.sub(text, -12, -7), 16) * 16777216 + tonumber(string.sub(text, -6), 16)
  return string.format('%.0f', number)
end
