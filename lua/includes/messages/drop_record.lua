-- Removes a message's reference to its record. The next `flush` deletes the record, unless other messages still refer
-- to it.
local function drop_record(p, record, size, changes)
  p.dropped, p.dropped_sizes = p.dropped or {}, p.dropped_sizes or {}
  local n = #p.dropped + 1
  p.dropped[n], p.dropped_sizes[n] = record, size
  p.bytes = p.bytes - changes
end
