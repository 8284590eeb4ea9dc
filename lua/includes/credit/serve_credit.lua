-- Does the work of credit at the end of a call: gives ready messages to open grants, chooses and tells who keeps the
-- due time, completes the answers to the grants of the call, and writes the words.
-- @use distribute keep_due_time open_credit write_credit inside
local function serve_credit(p)
  local c = open_credit(p)
  if (p.moved or c.rest) and (c.open or next(c.dirty)) or c.untold then
    distribute(p)
  end
  keep_due_time(p)
  for _, g in ipairs(p.granting or {}) do
    g.answer[1] = string.format('%s %s %.0f %.0f %.0f %.0f %s %s ', g.letter, g.w and g.w.prefix or '', g.serial, g.messages, g.bytes,
      g.w and g.w.limit or 0, g.flags, g.due and string.format('%.0f', g.due) or '') .. g.refusal
  end
  write_credit(p)
end
