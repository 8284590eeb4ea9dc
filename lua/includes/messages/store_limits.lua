-- Returns the limits of the records, and their present size. The list STORE in engine/_state.py names the fields. In a
-- call of several transactions, `p.unwritten` is the change of the size by earlier transactions that is not written
-- yet.
local function store_limits(p)
  local limits = redis.call('HMGET', p.store, unpack(STORE))
  if p.unwritten then
    limits[STORE.bytes] = string.format('%.0f', limits[STORE.bytes] + p.unwritten)
  end
  return limits
end
