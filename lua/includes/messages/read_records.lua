-- Returns the records with these numbers, in the same order. In place of a record that scripts cannot read, the list
-- has LOST_RECORD.
-- @use group_records readable read_many
local function read_records(keys, numbers, as_numbers)
  local groups, one = group_records(keys, numbers, as_numbers)
  local all, n, checked = {}, #numbers, nil
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
  for i = 1, n do
    local record = all[i]
    local head = record and string.sub(record, 1, string.byte(record) == 120 and 28 or 15)
    if not head or head ~= checked then -- messages that were sent together begin alike: check one
      all[i] = readable(record)
      checked = all[i] == record and head or nil
    end
  end
  return all
end
