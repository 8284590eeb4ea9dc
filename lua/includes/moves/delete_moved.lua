-- Deletes a message that is at its destination now, or whose partition is being destroyed. `text` is its entry, if it
-- has one.
-- @use drop_record record_key
local function delete_moved(p, name, text)
  local size, record, changes = nil, name, 0
  if text then
    local stored, other, at = string.match(text, '^(%d+);(%d*);%d*;()', 34)
    size, changes = tonumber(stored), #text - at + 1
    record = other ~= '' and other or name
    p.forgotten[#p.forgotten + 1] = name
  else
    size = redis.call('HSTRLEN', record_key(p.keys, tonumber(name)), name)
  end
  p.taken[#p.taken + 1] = name
  drop_record(p, record, size, changes)
end
