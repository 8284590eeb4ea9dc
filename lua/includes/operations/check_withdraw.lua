-- Checks the arguments of a withdrawal, from `at` on: the birth of the partition, and then the name of each message and
-- its changed properties. In a
-- transaction, `p.withdrawn` has the messages that earlier operations withdraw. Returns what apply_withdraw needs; or
-- nil and a refusal.
--
-- Refusals: ABSENT (some messages are not there as named, or a caller holds them; the detail is their names), BADCALL
-- Facts: freeing
-- @use entry_or_default has_overdue movable_messages read_records refuse inside
local function check_withdraw(p, argv, at)
  local found, gone = movable_messages(p, argv, at + 1)
  if not found then
    return nil, refuse('BADCALL', 'messages')
  end
  local withdrawn, late = p.withdrawn or {}, {}
  p.withdrawn = withdrawn
  if has_overdue(p) then -- a message that has expired is about to leave its place
    local numbers = {}
    for i = 1, #found.names do
      if found.letters[i] == 'a' then
        numbers[#numbers + 1] = found.entries[i] and string.match(found.entries[i], '^%d+;(%d+);', 34) or found.names[i]
      end
    end
    local records, at_record = #numbers > 0 and read_records(p.keys, numbers) or {}, 0
    for i = 1, #found.names do
      if found.letters[i] == 'a' then
        at_record = at_record + 1
        late[i] = tonumber(entry_or_default(found.entries[i], records[at_record]).expires) <= p.now
      end
    end
  end
  for i = 1, #found.names do
    if late[i] or withdrawn[found.names[i]] then
      gone[#gone + 1] = found.names[i]
    end
    withdrawn[found.names[i]] = true
  end
  if redis.call('HGET', p.state, 'birth') ~= argv[at] then -- these are names of a former partition
    gone = { 'all' }
  end
  if #gone > 0 then
    return nil, refuse('ABSENT', table.concat(gone, ' '))
  end
  return found
end
