-- Freezes messages as the next batch for a destination, whose entity has this id. `found` is the first result of
-- movable_messages; `batches` and `told` are the fields of `lasting` of these names, or nothing. Returns the number of
-- the batch and the names of its messages as runs, both as text.
-- @use add_pair leave_places name_runs side_of
local function freeze_messages(p, found, destination, id, holder, purpose, batches, told)
  leave_places(p, found)
  for i = 1, #found.names do
    local side, own = side_of(found.names[i])
    add_pair(p.placed, side.frozen + own, found.names[i])
  end
  -- A batch gets its number from the counter of the dead-letter queue, which leaps at an epoch. So a number that a
  -- failover has lost is never given to another batch.
  p.dead_seq = p.dead_seq + 1
  p.marked = true
  local number, runs = string.format('%.0f', p.dead_seq), name_runs(found.names)
  told = told or ' '
  if not string.find(told, ' ' .. id .. ' ', 1, true) then
    told = told .. id .. ' '
  end
  redis.call('HSET', p.lasting, 'b:' .. destination, table.concat({ number, holder, runs, purpose }, ' '),
    'batches', (batches or '') .. destination .. ' ', 'to', told)
  return number, runs
end
