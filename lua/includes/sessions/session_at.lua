-- Returns the session of a message, or nil. The sender's part of the message begins at `at` with a byte for the
-- version. The session comes first, if there is one: tag 2, then its length with seven bits a byte. Scripts read no
-- other part of the sender's data.
local function session_at(text, at)
  local _, tag, length, more = string.byte(text, at, at + 3)
  if tag ~= 2 or not more then
    return nil
  end
  local first = at + 3
  if length >= 128 then
    length, first = length - 128 + more * 128, first + 1
  end
  return string.sub(text, first, first + length - 1)
end
