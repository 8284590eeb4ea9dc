-- Groups the numbers of records by the key of the hash that holds them. `as_numbers` is the same list as Lua numbers,
-- if the caller has it, and `rising` says that each number is greater than the one before. Also returns whether there
-- is only one group.
-- @use record_key
local function group_records(keys, numbers, as_numbers, rising)
  local n, least, most = #numbers, math.huge, 0
  as_numbers = as_numbers or numbers
  for i = 1, n, rising and n > 1 and n - 1 or 1 do
    local number = tonumber(as_numbers[i])
    if number < least then
      least = number
    end
    if number > most then
      most = number
    end
  end
  if math.floor(least / 4096) == math.floor(most / 4096) then
    return { [record_key(keys, least)] = numbers }, true
  end
  local groups = {}
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
