-- Gathers the writes that lock chosen messages: their places in the band that begins at `base`, and their entries.
local function lock_messages(p, chosen, base)
  local placed, written = p.placed, p.entered
  local at, wrote, names, numbers, entries = #placed, #written, chosen.names, chosen.numbers, chosen.entries
  for i = 1, chosen.n do
    placed[at + 1], placed[at + 2], at = base + numbers[i], names[i], at + 2
    written[wrote + 1], written[wrote + 2], wrote = names[i], entries[i], wrote + 2
  end
end
