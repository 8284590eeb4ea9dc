-- The key of the hash that a record lies in: sixteen of them, because one hash of everything could not be moved to another
-- server.
local function record_key(keys, number)
  return keys[12 + math.floor(number / 4096) % 16]
end
