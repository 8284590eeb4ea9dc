-- Releases held messages; `held` is the result of held_messages. In `argv`, the changed properties and the delay follow
-- the name of each message. `how` is 1 if the deliveries count as failed, 0 if not, and i if they were interrupted.
-- @use entry release release_from_lease set_changes inside
local function apply_abandon(p, argv, held, how)
  for g = 1, #held do
    local mine = held[g]
    for i = 1, #mine.names do
      local e = entry(mine.entries[i])
      e.session = mine.session
      set_changes(p, e, argv[mine.at[i] + 1])
      release(p, mine.names[i], e, how == '1', tonumber(argv[mine.at[i] + 2]), how == 'i')
    end
    release_from_lease(p, mine, #mine.names)
  end
end
