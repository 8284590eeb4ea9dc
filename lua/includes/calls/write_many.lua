-- Runs a command with a long list of arguments, in pieces, because Lua can pass only some thousands in one call. The
-- list may consist of pairs: no pair is split, because each piece has an even number of arguments.
local function write_many(command, key, list)
  local n = #list
  if n > 0 and n <= 1000 then
    return redis.call(command, key, unpack(list))
  end
  for i = 1, n, 1000 do
    redis.call(command, key, unpack(list, i, math.min(i + 999, n)))
  end
end
