-- Returns the number under which the record of a message is stored: its own number, unless its entry names another
-- number.
local function record_of(member, text)
  local other = text and string.match(text, '^%d+;(%d*);', 34)
  return other and other ~= '' and other or member
end
