-- The records of these numbers, in the same order.
-- @use gather group_records
local function records(keys, numbers, as_numbers)
  local groups, one = group_records(keys, numbers, as_numbers)
  if one then
    return gather('HMGET', next(groups), numbers)
  end
  local found, all = {}, {}
  for key, group in pairs(groups) do
    local part = gather('HMGET', key, group)
    for j = 1, #part do
      found[group[j]] = part[j]
    end
  end
  for i = 1, #numbers do
    all[i] = found[numbers[i]]
  end
  return all
end
