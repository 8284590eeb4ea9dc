-- Returns the session of a stored message, or nil.
-- @use session_at
local function record_session(record)
  return session_at(record, string.byte(record) == 120 and 29 or 16)
end
