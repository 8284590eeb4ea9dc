-- Returns the place in `order` of the last message of a level of a subscription, or -1. `base` is where the level
-- begins. `places` keeps what a call knows: for each subscription, the last place of each level.
-- @use band flush
local function last_place(places, target, base)
  local known = places[target]
  if not known then
    if #target.placed > 0 then
      flush(target) -- earlier operations of a transaction may have published here
    end
    known = {}
    places[target] = known
  end
  if not known[base] then
    local found = redis.call('ZRANGE', target.order, base + BAND - 1, base, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    known[base] = tonumber(found[2] or -1)
  end
  return known[base]
end
