-- Returns whether duplicate detection would remember more than `most` ids after a call with these messages, and how
-- many it remembers now. Ids from before the window do not count. Nor do those that the call repeats: they are dropped.
-- In a transaction, the ids of the operations before this one do not count either, so it may go beyond the limit.
local function too_many_ids(p, argv, at, count, stride, columns, most)
  local known = redis.call('ZCOUNT', p.dedup, '(' .. string.format('%.0f', p.now - p.window), '+inf')
  if known + count <= most then
    return false
  end
  local ids, once = {}, {}
  for i = 1, count do
    local first = at + (i - 1) * stride
    local id = argv[first + columns.i]
    if id ~= '' and not once[id] and not (columns.o and argv[first + columns.o] ~= '') then
      once[id] = true
      ids[#ids + 1] = id
    end
  end
  local seen, new = #ids > 0 and redis.call('ZMSCORE', p.dedup, unpack(ids)) or {}, 0
  for i = 1, #ids do
    if not seen[i] or tonumber(seen[i]) <= p.now - p.window then
      new = new + 1
    end
  end
  return new > 0 and known + new > most, known
end
