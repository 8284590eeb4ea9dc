-- Returns the side that a member of `order` is on, and its number there.
-- @use sides
local function side_of(member)
  if string.byte(member) == 100 then
    return SIDES.d, tonumber(string.sub(member, 2))
  end
  return SIDES[''], tonumber(member)
end
