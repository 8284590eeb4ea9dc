-- Adds two values to the end of a list.
local function add_pair(list, first, second)
  local n = #list
  list[n + 1], list[n + 2] = first, second
end
