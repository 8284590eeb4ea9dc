-- Reads the texts of a hash whose names are between `after` and `before`, in the order of their names. It reads at most
-- `limit` texts. It stops earlier if the next text would not fit into the reply, but it always reads one. Returns the
-- names, the texts, and whether there may be more. A text that is missing counts as empty.
local function page(names, texts, after, before, limit)
  local ROOM = 1048576
  local members = redis.call('ZRANGEBYLEX', names, '(' .. after, '(' .. before, 'LIMIT', 0, limit)
  local listed, found, bytes = {}, {}, 0
  for i = 1, #members do
    local text = redis.call('HGET', texts, members[i]) or ''
    bytes = bytes + #text
    if i > 1 and bytes > ROOM then
      return listed, found, true
    end
    listed[i], found[i] = members[i], text
  end
  return listed, found, #members == limit
end
