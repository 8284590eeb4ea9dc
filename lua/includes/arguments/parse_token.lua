-- Returns the token of a lease, or nil if the text is not a valid token.
local function parse_token(text)
  return text and #text == 12 and string.find(text, '^[%w_-]+$') and text or nil
end
