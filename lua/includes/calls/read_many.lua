-- Runs a reading command on a long list of fields, in pieces. Returns the values in the same order.
local function read_many(command, key, list)
  local n = #list
  if n == 0 then
    return {}
  end
  if n <= 1000 then
    return redis.call(command, key, unpack(list))
  end
  local all = {}
  for i = 1, n, 1000 do
    local part = redis.call(command, key, unpack(list, i, math.min(i + 999, n)))
    for j = 1, #part do
      all[#all + 1] = part[j]
    end
  end
  return all
end
