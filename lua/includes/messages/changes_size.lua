-- Returns the size of the changed properties in an entry, and the position after which they begin. A message without
-- an entry has none.
local function changes_size(text)
  if not text then
    return 0
  end
  local _, at = string.find(text, ';%d*;%d*;', 34)
  return #text - at, at
end
