-- Moves held messages to the dead-letter queue; `held` is the result of held_messages. In `argv`, the changed
-- properties follow the name of each message. Returns the names of the messages that were dead letters already.
-- @use bury entry index_remove release_from_lease set_changes inside
local function apply_dead_letter(p, held, argv)
  local unfit = {}
  for g = 1, #held do
    local mine, count = held[g], 0
    for i = 1, #mine.names do
      local member = mine.names[i]
      if not tonumber(member) then
        unfit[#unfit + 1] = member
        if mine.alone then
          mine.alone[member] = nil -- it stays locked
        end
      else
        local e = entry(mine.entries[i])
        set_changes(p, e, argv[mine.at[i] + 1])
        if mine.session then
          index_remove(p, mine.session, 'h', tonumber(member))
        end
        bury(p, member, e, 'A')
        count = count + 1
      end
    end
    release_from_lease(p, mine, count)
  end
  return unfit
end
