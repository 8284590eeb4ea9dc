-- Returns the list of records, each after its number, that the next `flush` stores in the hash of this number.
-- @use record_key
local function records_to_store(p, number)
  local key = record_key(p.keys, number)
  p.stored = p.stored or {}
  p.stored[key] = p.stored[key] or {}
  return p.stored[key]
end
