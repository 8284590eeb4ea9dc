-- Returns the largest number, up to `upto`, with at most `most` ready messages above `after` and up to this number; and
-- how many they are. It bisects by counting, so its cost does not depend on the number of messages.
-- @use count_ready ready_levels
local function end_of_range(p, after, upto, most)
  local levels, count, highest = ready_levels(p, after, upto)
  if count <= most then
    return highest, count
  end
  local low, high, fit = after, highest, 0
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local there = count_ready(p, levels, after, middle)
    if there > most then
      high = middle
    else
      low, fit = middle, there
      if there == most then
        break
      end
    end
  end
  return low, fit
end
