-- Returns the records with these numbers, in the same order. In place of a record that scripts cannot read, the list
-- has LOST_RECORD. `as_numbers` and `rising` are as in group_records.
-- @use group_records readable read_many
local function read_records(keys, numbers, as_numbers, rising)
  local groups, one = group_records(keys, numbers, as_numbers, rising)
  local all, n = {}, #numbers
  if one then
    all = read_many('HMGET', next(groups), numbers)
  else
    local found = {}
    for key, group in pairs(groups) do
      local part = read_many('HMGET', key, group)
      for j = 1, #part do
        found[group[j]] = part[j]
      end
    end
    for i = 1, n do
      all[i] = found[numbers[i]]
    end
  end
  -- Messages that were sent together begin alike, so only the first of them is checked.
  local length, checked, sub = 15, nil, string.sub
  for i = 1, n do
    local record = all[i]
    if not record or sub(record, 1, length) ~= checked then
      all[i] = readable(record)
      length = string.byte(all[i]) == 120 and 28 or 15
      checked = all[i] == record and sub(record, 1, length)
    end
  end
  return all
end
