#!lua flags=allow-oom
-- Releases locked messages, so that they can be received again. Each message returns to its own place, immediately or
-- after a delay, unless it has reached the delivery limit or has expired. A delay holds back the whole session of the
-- message, because a session keeps its order. Each delivery counts as failed, unless the client releases the messages
-- unread.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    counted     1 if the deliveries count as failed, or 0 if the client releases the messages unread
-- ARGV[8...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name, its changed properties (or nothing) and a delay in ms
--
-- Result: { more, the names of messages whose lock was lost }
-- Refusals: call
-- @use advance answer_repetition begin entry finish lock_groups never refuse release release_from_lease set_changes
-- @use split_words still_held whole_number
local p, refusal = begin(KEYS, ARGV, 'abandon', 7, true)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { 0, split_words(p.repeated) })
end
local list = lock_groups(ARGV, 8, 3)
if not list or ARGV[7] ~= '0' and ARGV[7] ~= '1' then
  return refuse('BADCALL', 'groups')
end
for g = 1, #list do
  for i = 1, #list[g].members do
    if not whole_number(ARGV[list[g].at + (i - 1) * 3 + 2], 0, NEVER) then
      return refuse('BADCALL', 'delay')
    end
  end
end

advance(p, 100)
local seen, lost = {}, {}
for g = 1, #list do
  local mine = still_held(p, list[g], seen, lost)
  for i = 1, #mine.names do
    local e = entry(mine.entries[i])
    e.session = mine.session
    set_changes(p, e, ARGV[mine.at[i] + 1])
    release(p, mine.names[i], e, ARGV[7] == '1', tonumber(ARGV[mine.at[i] + 2]))
  end
  release_from_lease(p, mine, #mine.names)
end
finish(p, table.concat(lost, ' '))
return { p.more, lost }
