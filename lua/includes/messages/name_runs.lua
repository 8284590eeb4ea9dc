-- Returns message names as runs, in the given order. The messages may be of both sides.
-- @use number_runs side_of
local function name_runs(members)
  local list, prefix, numbers = {}, nil, {}
  for i = 1, #members do
    local side, number = side_of(members[i])
    if side.prefix ~= prefix and #numbers > 0 then
      list[#list + 1] = number_runs(prefix, numbers)
      numbers = {}
    end
    prefix = side.prefix
    numbers[#numbers + 1] = number
  end
  list[#list + 1] = number_runs(prefix, numbers)
  return table.concat(list, ',')
end
