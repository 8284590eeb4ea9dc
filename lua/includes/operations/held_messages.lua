-- Returns the messages that their leases still hold: for each group of a settlement the result of still_held. Adds the
-- other messages to `lost`.
-- @use still_held
local function held_messages(p, groups, seen, lost)
  local held = {}
  for g = 1, #groups do
    held[g] = still_held(p, groups[g], seen, lost)
  end
  return held
end
