-- Puts changed properties into an entry; empty ones leave it as it is.
local function set_changes(p, e, changes)
  if changes ~= '' then
    p.bytes = p.bytes + #changes - #e.changes
    e.changes = changes
  end
end
