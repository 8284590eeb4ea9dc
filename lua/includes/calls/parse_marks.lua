-- Takes the field `marks` of a partition apart: what each call must know of the partition, and what seldom changes.
-- Returns the numbers as a table. Nobody changes this table.
-- @remember 256
local function parse_marks(text)
  local offset, dead_seq, head, horizon, next_lock, next_due, biggest, announced =
    string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    offset = offset + 0, dead_seq = dead_seq + 0, head = head + 0, horizon = horizon + 0, next_lock = next_lock + 0,
    next_due = next_due + 0, biggest = biggest + 0, announced = announced + 0,
  }
end
