-- Returns the levels that have ready messages with numbers above `after`, up to `upto`; the number of these messages;
-- and the highest of their numbers, or `after` if there are none.
-- @use band levels
local function ready_levels(p, after, upto)
  local levels, count, highest = {}, 0, after
  for level = 0, LEVELS - 1 do
    local from, to = level * BAND + after + 1, level * BAND + upto
    local there = upto > after and redis.call('ZCOUNT', p.order, from, to) or 0
    if there > 0 then
      levels[#levels + 1], count = level, count + there
      local last = redis.call('ZRANGE', p.order, to, from, 'BYSCORE', 'REV', 'LIMIT', 0, 1)
      highest = math.max(highest, tonumber(last[1]))
    end
  end
  return levels, count, highest
end
