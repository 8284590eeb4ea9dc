-- Reads texts of a hash in the order of their names, between two names that are excluded. It reads up to the limit, and
-- no more than fit into a reply, but at least one. Returns the names, the texts, and whether there may be more.
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
