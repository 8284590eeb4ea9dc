-- Deletes the messages that a receive gives out without a lock.
-- @use discard entry inside
local function delete_received(p, names, entries)
  for i = 1, #names do
    discard(p, names[i], entry(entries[i]))
  end
end
