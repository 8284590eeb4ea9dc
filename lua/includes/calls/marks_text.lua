-- Returns the field `marks` of a partition, as parse_marks reads it. A call that changes one of its numbers sets
-- `marked`, and writes all of them at its end.
-- @use number_text
local function marks_text(p)
  return number_text[p.offset] .. ' ' .. number_text[p.dead_seq] .. ' ' .. number_text[p.head]
    .. ' ' .. number_text[p.horizon] .. ' ' .. number_text[p.next_lock] .. ' ' .. number_text[p.next_due]
    .. ' ' .. number_text[p.biggest] .. ' ' .. number_text[p.announced]
end
