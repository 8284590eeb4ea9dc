-- Returns the member of `order` that an event in `due` is about: the reverse of `due_name`, for every letter except b.
-- @use index_name
local function due_message(text)
  local name = index_name(text)
  return #text == 14 and string.sub(text, 2, 2) .. name or name
end
