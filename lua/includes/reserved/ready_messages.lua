-- Returns the names of the ready messages of the main side with numbers above `after`, up to `upto`, in the order of
-- their numbers: at most `most` of them. Also returns the number up to which the list is complete.
-- @use band end_of_range levels
local function ready_messages(p, after, upto, most)
  local last, found, mixed = end_of_range(p, after, upto, most), {}, false
  for level = 0, last > after and LEVELS - 1 or -1 do
    local some = redis.call('ZRANGE', p.order, level * BAND + after + 1, level * BAND + last, 'BYSCORE')
    local n = #found
    mixed = mixed or n > 0 and #some > 0
    for i = 1, #some do
      found[n + i] = some[i]
    end
  end
  if mixed then
    local numbers, names = {}, {}
    for i = 1, #found do
      numbers[i] = tonumber(found[i])
      names[numbers[i]] = found[i]
    end
    table.sort(numbers)
    for i = 1, #numbers do
      found[i] = names[numbers[i]]
    end
  end
  return found, last
end
