-- Returns the token of a lease, or nil if the text is not a valid token. With `alone`, the text may also be the key of
-- the lease of a single message: the token, and the name of the message.
local function parse_token(text, alone)
  if text and #text == 11 or alone and string.find(text, '^[dt]?[1-9]%d*$', 12) and #text < 28 then
    return string.find(text, '^[%w_-]+$') and text or nil
  end
end
