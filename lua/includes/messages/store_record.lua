-- Stores a record: the next `flush` writes it. `changes` is the size of the changed properties in the message's entry.
-- @use add_pair note_size records_to_store
local function store_record(p, number, record, changes)
  add_pair(records_to_store(p, number), number, record)
  p.bytes = p.bytes + #record + changes
  note_size(p, #record + changes)
end
