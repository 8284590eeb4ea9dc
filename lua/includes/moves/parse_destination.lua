-- Returns a destination of a move: the id of an entity, a colon, and the number of a partition. Returns nil if the text
-- is malformed. The second result is the id.
local function parse_destination(text)
  local id = string.match(text, '^([%w_.-]+):%d+$')
  if not id or #text > 64 then
    return nil
  end
  return text, id
end
