-- Returns the places of the messages that wait to be moved: for each range its first and its last place.
-- @use band levels sides
local function outgoing_ranges(p)
  local main, dead, ranges = SIDES[''], SIDES.d, {}
  if p.forwards then
    ranges[1] = { main.ready, LEVELS * BAND - 1 }
  end
  ranges[#ranges + 1] = { main.transfer, main.transfer + BAND - 1 }
  if p.forwards_dead then
    ranges[#ranges + 1] = { dead.ready, dead.ready + BAND - 1 }
  end
  return ranges
end
