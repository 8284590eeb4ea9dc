-- Returns the lowest number of a message that may come back to the ready messages of the main side under its old
-- number: one that is locked, held, delayed, or frozen without being a transfer; or nil. No range may end above it,
-- because the message would then come back below the floor, and would be removed although no reader has seen it.
-- @use band read_many sides
local function first_away(p)
  local side, first = SIDES[''], math.huge
  for _, base in ipairs({ side.locked, side.held, side.delayed }) do
    local found = redis.call('ZRANGE', p.order, base, base + BAND - 1, 'BYSCORE', 'LIMIT', 0, 1)
    first = math.min(first, tonumber(found[1] or math.huge))
  end
  local frozen = redis.call('ZRANGE', p.order, side.frozen, side.frozen + BAND - 1, 'BYSCORE', 'LIMIT', 0, 1000)
  local entries = read_many('HMGET', p.entries, frozen)
  for i = 1, #frozen do
    if i == 1000 or not entries[i] or string.byte(entries[i], 14) ~= 120 then
      first = math.min(first, tonumber(frozen[i]))
    end
  end
  return first < math.huge and first or nil
end
