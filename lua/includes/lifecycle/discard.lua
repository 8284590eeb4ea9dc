-- Removes a message from the partition for good. The next `flush` deletes its record, unless other messages refer to
-- it.
-- @use drop_record
local function discard(p, member, e)
  p.taken[#p.taken + 1] = member
  p.forgotten[#p.forgotten + 1] = member
  drop_record(p, e.record == '' and member or e.record, e.size, #e.changes)
end
