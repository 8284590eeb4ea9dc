-- Gathers the writes that lock chosen messages: their places in the band that begins at `base`, and their entries.
-- @use digits
local function lock_messages(p, chosen, base)
  local placed, written = p.placed, p.entered
  local at, wrote, names, numbers, entries = #placed, #written, chosen.names, chosen.numbers, chosen.entries
  for i = 1, chosen.n do
    local name = names[i]
    at, wrote = at + 2, wrote + 2
    placed[at - 1] = digits(base + numbers[i])
    placed[at] = name
    written[wrote - 1] = name
    written[wrote] = entries[i]
  end
end
