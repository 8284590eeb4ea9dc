-- Makes room for a new field of a hash that has at most 1,000 fields: if it is full, all fields for which
-- `is_over(field, value)` is true are deleted. Returns nothing, or a refusal if none of them is.
--
-- Refusals: FULL
-- @use refuse
local function make_room(key, is_over)
  if redis.call('HLEN', key) < 1000 then
    return
  end
  local all, over = redis.call('HGETALL', key), {}
  for i = 1, #all, 2 do
    if is_over(all[i], all[i + 1]) then
      over[#over + 1] = all[i]
    end
  end
  if #over == 0 then
    return refuse('FULL', '1000')
  end
  redis.call('HDEL', key, unpack(over))
end
