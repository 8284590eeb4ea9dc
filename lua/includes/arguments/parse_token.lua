-- A lease's token, or nil if it cannot be one.
local function parse_token(text)
  return text and #text == 12 and string.find(text, '^[%w_-]+$') and text or nil
end
