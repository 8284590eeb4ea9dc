-- Returns the number of ready messages of the main side whose numbers are above `after`, up to `upto`. `levels` are the
-- levels to look at.
-- @use band
local function count_ready(p, levels, after, upto)
  local count = 0
  for i = 1, upto > after and #levels or 0 do
    count = count + redis.call('ZCOUNT', p.order, levels[i] * BAND + after + 1, levels[i] * BAND + upto)
  end
  return count
end
