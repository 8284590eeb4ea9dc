-- The session of a stored message, or nil.
-- @use session_of
local function session_in(record)
  return session_of(record, string.byte(record) == 120 and 29 or 16)
end
