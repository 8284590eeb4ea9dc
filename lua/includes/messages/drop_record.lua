-- Remembers that nothing of a message needs its record any more: it goes with the next `flush`, unless others still refer to it.
local function drop_record(p, record, size, changes)
  local n = #p.dropped + 1
  p.dropped[n], p.dropped_sizes[n] = record, size
  p.bytes = p.bytes - changes
end
