-- Returns a stored record; or LOST_RECORD, the record of an empty message, if the record is missing, too short, or has
-- malformed times or a malformed level. So no script fails because a record was deleted or damaged.
-- @use lost_record
local function readable(record)
  if record and (string.find(record, '^[as][0-7]%d%d%d%d%d%d%d%d%d%d%d%d%d')
    or string.find(record, '^x[0-7]%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')) then
    return record
  end
  return LOST_RECORD
end
