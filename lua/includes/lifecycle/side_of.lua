-- Returns the side that a member of `order` is on, and its number there.
-- @use sides
local function side_of(member)
  local number = tonumber(member)
  if number then
    return SIDES[''], number
  end
  return SIDES[string.sub(member, 1, 1)], tonumber(string.sub(member, 2))
end
