-- Collects messages that are gone for good: the next `flush` deletes them, with their entries and records. `stored` has
-- the numbers of their records; if these are the names of the messages, it is the same list as `names`, and `numbers`
-- is this list as Lua numbers, if the caller has it. The caller leaves the lists to this function.
local function delete_later(p, names, stored, sizes, numbers)
  local gone, n = p.gone, nil
  if not gone then
    p.gone = { names = names, stored = stored, sizes = sizes, numbers = stored == names and numbers or nil }
    return
  end
  n = #gone.names
  if gone.stored == gone.names and stored ~= names then
    gone.stored = { unpack(gone.names) }
  end
  gone.numbers = gone.stored == gone.names and gone.numbers or nil
  for i = 1, #names do
    gone.names[n + i], gone.sizes[n + i] = names[i], sizes[i]
    if gone.numbers then
      gone.numbers[n + i] = numbers[i]
    elseif gone.stored ~= gone.names then
      gone.stored[n + i] = stored[i]
    end
  end
end
