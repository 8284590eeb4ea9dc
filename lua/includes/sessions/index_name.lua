-- The name of a message that stands in `sessions`, which is its number, and the number.
local function index_name(seat)
  local number = tonumber(string.sub(seat, -12, -7), 16) * 16777216 + tonumber(string.sub(seat, -6), 16)
  return string.format('%.0f', number), number
end
