-- Returns the entry of a message that is not locked. If the message has no entry, one is derived from its record.
-- @use entry never_text
local function entry_or_default(text, record)
  if text then
    return entry(text)
  end
  return {
    mark = ' ', level = string.sub(record, 2, 2), home = 'a', reason = '-', failures = 0,
    expires = string.byte(record) == 120 and string.sub(record, 16, 28) or NEVER_TEXT,
    size = #record, record = '', before = '', changes = '',
  }
end
