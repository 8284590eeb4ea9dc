-- Releases held messages; `held` is the result of held_messages. In `argv`, the changed properties and the delay follow
-- the name of each message. With `counted`, the deliveries count as failed.
-- @use entry release release_from_lease set_changes inside
local function apply_abandon(p, argv, held, counted)
  for g = 1, #held do
    local mine = held[g]
    for i = 1, #mine.names do
      local e = entry(mine.entries[i])
      e.session = mine.session
      set_changes(p, e, argv[mine.at[i] + 1])
      release(p, mine.names[i], e, counted, tonumber(argv[mine.at[i] + 2]))
    end
    release_from_lease(p, mine, #mine.names)
  end
end
