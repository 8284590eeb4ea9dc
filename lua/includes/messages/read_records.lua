-- Returns the records with these numbers, in the same order.
-- @use group_records read_many
local function read_records(keys, numbers, as_numbers)
  local groups, one = group_records(keys, numbers, as_numbers)
  if one then
    return read_many('HMGET', next(groups), numbers)
  end
  local found, all = {}, {}
  for key, group in pairs(groups) do
    local part = read_many('HMGET', key, group)
    for j = 1, #part do
      found[group[j]] = part[j]
    end
  end
  for i = 1, #numbers do
    all[i] = found[numbers[i]]
  end
  return all
end
