-- Returns an argument as a whole number; or nil if the argument is not a whole number between the two bounds.
local function whole_number(text, least, most)
  if not text or not string.find(text, '^%d+$') or #text > 15 then
    return nil
  end
  local number = text + 0
  if number < least or number > most then
    return nil
  end
  return number
end
