-- Groups the numbers of records by the key of the hash that holds them. `as_numbers` is the same list as Lua numbers,
-- if the caller has it, and `rising` says that each number is greater than the one before. Also returns whether there
-- is only one group.
-- @use record_key
local function group_records(keys, numbers, as_numbers, rising)
  as_numbers = as_numbers or numbers
  local n, least, groups = #numbers, math.floor((as_numbers[1] or 0) / 4096) * 4096, {}
  local most, one = least + 4096, true
  for i = 1, n, rising and n > 1 and n - 1 or 1 do
    local number = as_numbers[i] + 0
    if number < least or number >= most then
      one = false
      break
    end
  end
  if one then
    groups[record_key(keys, least)] = numbers
    return groups, true
  end
  for i = 1, n do
    local key = record_key(keys, as_numbers[i])
    local group = groups[key]
    if not group then
      group = {}
      groups[key] = group
    end
    group[#group + 1] = numbers[i]
  end
  return groups, false
end
