-- Defers held messages; `held` is the result of held_messages. In `argv`, the changed properties follow the name of
-- each message.
-- @use entry release release_from_lease set_changes inside
local function apply_defer(p, argv, held)
  for g = 1, #held do
    local mine = held[g]
    for i = 1, #mine.names do
      local e = entry(mine.entries[i])
      e.session = mine.session
      set_changes(p, e, argv[mine.at[i] + 1])
      e.home = 'f' -- `release` puts the message into its home state, which is now deferred
      release(p, mine.names[i], e, true, 0)
    end
    release_from_lease(p, mine, #mine.names)
  end
end
