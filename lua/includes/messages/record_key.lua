-- Returns the key of the hash that holds a record. There are sixteen hashes, because one hash of everything would be
-- too large to move to another server.
local function record_key(keys, number)
  return keys[11 + math.floor(number / 4096) % 16]
end
