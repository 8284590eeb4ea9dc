-- Returns the entry of a message that is not locked as text, in the form that `entry` parses.
local function entry_text(e)
  return table.concat({
    '           ', e.mark, e.level, e.home, e.reason, string.format('%05d', math.min(e.failures, 99999)), e.expires,
    e.size, ';', e.record, ';', e.before, ';', e.changes,
  })
end
