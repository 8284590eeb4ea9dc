-- The session that a message belongs to, or nil: what its sender gave begins at `at` with a byte for the version, and if it
-- has a session, that comes first, as tag 2 and its length, seven bits a byte. Nothing else of it is ever looked at here.
local function session_at(text, at)
  local _, tag, length, more = string.byte(text, at, at + 3)
  if tag ~= 2 then
    return nil
  end
  local first = at + 3
  if length >= 128 then
    length, first = length - 128 + more * 128, first + 1
  end
  return string.sub(text, first, first + length - 1)
end
