-- Checks the arguments of an abandon, from `at` on: 1, 0 or i, as apply_release takes it, and then the groups, with the
-- name, the changed properties and the delay of each message. Returns the groups, and with `grants` the place of the
-- first grant after them; or nil and a refusal.
-- @use never
-- @use lock_groups refuse whole_number inside
local function check_abandon(argv, at, grants)
  local groups, after = lock_groups(argv, at + 1, 3, false, grants)
  if not groups or not string.find(argv[at], '^[01i]$') then
    return nil, refuse('BADCALL', 'groups')
  end
  for g = 1, #groups do
    for i = 1, #groups[g].members do
      if not whole_number(argv[groups[g].at + (i - 1) * 3 + 2], 0, NEVER) then
        return nil, refuse('BADCALL', 'delay')
      end
    end
  end
  return groups, after
end
