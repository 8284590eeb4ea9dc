-- Puts changed properties into an entry. An empty text leaves the entry unchanged. The largest message of a partition
-- is measured with its changed properties.
local function set_changes(p, e, changes)
  if changes ~= '' then
    p.bytes = p.bytes + #changes - #e.changes
    e.changes = changes
    if e.size + #changes > p.biggest then
      p.biggest, p.marked = e.size + #changes, true
    end
  end
end
