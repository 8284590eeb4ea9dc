-- Reads texts of a hash in the order of their names, between two that are not among them, as many as are asked for and fit into
-- a reply, one at least. Gives the names, the texts, and whether there may be more.
local function page(names, texts, after, before, limit)
  local ROOM = 1048576
  local members = redis.call('ZRANGEBYLEX', names, '(' .. after, '(' .. before, 'LIMIT', 0, limit)
  local listed, found, bytes = {}, {}, 0
  for i = 1, #members do
    local text = redis.call('HGET', texts, members[i])
    bytes = bytes + #text
    if i > 1 and bytes > ROOM then
      return listed, found, true
    end
    listed[i], found[i] = members[i], text
  end
  return listed, found, #members == limit
end
