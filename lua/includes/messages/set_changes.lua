-- Puts changed properties into an entry. An empty text leaves the entry unchanged. The largest message of a partition
-- is measured with its changed properties.
-- @use note_size
local function set_changes(p, e, changes)
  if changes ~= '' then
    p.bytes = p.bytes + #changes - #e.changes
    e.changes = changes
    note_size(p, e.size + #changes)
  end
end
