-- Stores a record: the next `flush` writes it. `changes` is the size of the changed properties in the message's entry.
-- @use note_size record_key
local function store_record(p, number, record, changes)
  local key = record_key(p.keys, number)
  p.stored = p.stored or {}
  local fields = p.stored[key] or {}
  fields[#fields + 1] = number
  fields[#fields + 1] = record
  p.stored[key] = fields
  p.bytes = p.bytes + #record + changes
  note_size(p, #record + changes)
end
