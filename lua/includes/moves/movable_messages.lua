-- Returns the messages in the arguments that can be moved now: their names, their entries, and the letters of their
-- states: a ready on the main side, d delayed, p deferred; false for all others. Also returns the names of the other
-- messages. In the arguments, each name is followed by the changed properties that the mover has read. A message can be
-- moved if no caller holds it, and if these are still its changed properties: its record never changes, so the mover
-- then knows the whole message. The messages of a reserved partition stay, except transfers and dead letters. Returns
-- nil if the arguments are malformed.
-- @use band levels read_many side_of inside
local function movable_messages(p, argv, at)
  local names, seen, count = {}, {}, (#argv - at + 1) / 2
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return nil
  end
  for i = 1, count do
    local name = argv[at + 2 * i - 2]
    if not string.find(name, '^[dt]?[1-9]%d*$') or #name > 16 or seen[name] then
      return nil
    end
    names[i], seen[name] = name, true
  end
  local scores, entries = read_many('ZMSCORE', p.order, names), read_many('HMGET', p.entries, names)
  local found, gone = { names = {}, entries = {}, letters = {} }, {}
  for i = 1, count do
    local side, number = side_of(names[i])
    local place, text = tonumber(scores[i] or -1) - number, entries[i]
    local main = side.prefix == ''
    local letter = place == side.delayed and 'd' or place == side.deferred and 'p'
      or main and place >= 0 and place < LEVELS * BAND and 'a'
    local movable = letter and not (main and p.reserved) or place == (main and side.transfer or side.ready)
      or not main and place == side.kept
    local changes = text and string.sub(text, (string.match(text, '^%d+;%d*;%d*;()', 34))) or ''
    if movable and changes == argv[at + 2 * i - 1] then
      local n = #found.names + 1
      found.names[n], found.entries[n], found.letters[n] = names[i], text, letter
    else
      gone[#gone + 1] = names[i]
    end
  end
  return found, gone
end
