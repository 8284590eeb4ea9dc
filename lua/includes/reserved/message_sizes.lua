-- Returns the stored sizes of the first of these messages, changed properties included: of all that fit into `room`
-- bytes, but of at least one. Also returns their sum.
-- @use record_key
local function message_sizes(p, names, entries, room)
  local sizes, sum = {}, 0
  for i = 1, #names do
    local text, size = entries[i], nil
    if text then
      local stored, at = string.match(text, '^(%d+);%d*;%d*;()', 34)
      size = stored + #text - at + 1
    else
      size = redis.call('HSTRLEN', record_key(p.keys, names[i]), names[i])
    end
    if sum + size > room and i > 1 then
      break
    end
    sizes[i], sum = size, sum + size
  end
  return sizes, sum
end
