#!lua flags=allow-oom
-- Moves locked messages to the dead-letter queue. Messages that are already there do not change.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and for each of these messages its
--   name and its changed properties (with reason and description)
--
-- Result: { more, the names of messages whose lock was lost, the names of messages that were dead letters already }
-- Refusals: call
-- @use advance answer_repetition begin bury entry finish index_remove lock_groups refuse release_from_lease set_changes
-- @use split_words still_held
local p, refusal = begin(KEYS, ARGV, 'dead_letter', 6, true)
if not p then
  return refusal
end
if p.repeated then
  local lost, unfit = string.match(p.repeated, '^(.*)|(.*)$')
  return answer_repetition(p, { 0, split_words(lost), split_words(unfit) })
end
local list = lock_groups(ARGV, 7, 2)
if not list then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local seen, lost, unfit = {}, {}, {}
for g = 1, #list do
  local mine, count = still_held(p, list[g], seen, lost), 0
  for i = 1, #mine.names do
    local member = mine.names[i]
    if string.byte(member) == 100 then
      unfit[#unfit + 1] = member
    else
      local e = entry(mine.entries[i])
      set_changes(p, e, ARGV[mine.at[i] + 1])
      if mine.session then
        index_remove(p, mine.session, 'h', tonumber(member))
      end
      bury(p, member, e, 'A')
      count = count + 1
    end
  end
  release_from_lease(p, mine, count)
end
finish(p, table.concat(lost, ' ') .. '|' .. table.concat(unfit, ' '))
return { p.more, lost, unfit }
