-- Puts changed properties into an entry. An empty text leaves the entry unchanged.
local function set_changes(p, e, changes)
  if changes ~= '' then
    p.bytes = p.bytes + #changes - #e.changes
    e.changes = changes
  end
end
