-- Returns whether a message of a side is ready for a receiver; and whether suspects come first that it does not take.
local function ready_for(p, w, side)
  if w.suspects then
    return #redis.call('ZRANGE', p.order, side.from, side.to, 'BYSCORE', 'LIMIT', 0, 1) > 0, false
  end
  local at, some, first = 0, 1, false
  while true do
    local members = redis.call('ZRANGE', p.order, side.from, side.to, 'BYSCORE', 'LIMIT', at, some)
    local entries = #members > 0 and redis.call('HMGET', p.entries, unpack(members)) or {}
    for i = 1, #members do
      local mark = entries[i] and string.byte(entries[i], 12)
      if not mark or mark ~= 48 and mark < 50 then -- no suspect
        return true, first
      end
      first = true
    end
    if #members < some then
      return false, first
    end
    at, some = at + some, 100
  end
end
