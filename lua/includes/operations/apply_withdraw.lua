-- Removes the messages that check_withdraw has checked. The same transaction stores them at their destination.
-- @use delete_moved leave_places inside
local function apply_withdraw(p, found)
  leave_places(p, found)
  for i = 1, #found.names do
    delete_moved(p, found.names[i], found.entries[i])
  end
end
