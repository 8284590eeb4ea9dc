-- Abandons or defers held messages; `held` is the result of held_messages. In `argv`, the changed properties follow the
-- name of each message; if it is abandoned, then the delay. `how` is f if the messages are deferred. If they are
-- abandoned, it is 1 if the deliveries count as failed, 0 if not, and i if they were interrupted.
-- @use entry release release_from_lease set_changes inside
local function apply_release(p, held, argv, how)
  local deferred = how == 'f'
  for g = 1, #held do
    local mine = held[g]
    for i = 1, #mine.names do
      local e = entry(mine.entries[i])
      e.session = mine.session
      set_changes(p, e, argv[mine.at[i] + 1])
      if deferred then
        e.home = 'f' -- `release` puts the message into its home state, which is now deferred
      end
      release(p, mine.names[i], e, deferred or how == '1', deferred and 0 or tonumber(argv[mine.at[i] + 2]), how == 'i')
    end
    release_from_lease(p, mine, #mine.names)
  end
end
