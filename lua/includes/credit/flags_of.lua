-- Returns the letters of a text as a table, in which each of them is true. Nobody changes this table.
-- @remember 256
local function flags_of(text)
  local flags = {}
  for letter in string.gmatch(text, '%a') do
    flags[letter] = true
  end
  return flags
end
