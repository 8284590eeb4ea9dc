-- Returns a random text that identifies something, such as an incarnation; or nil if the text is not valid.
local function parse_stamp(text)
  return text and #text == 12 and string.find(text, '^[%w_-]+$') and text or nil
end
