-- Checks one operation of a transaction; `argv` are the arguments that its own script has after those of the call. A
-- settlement and a renewal need the locks of all their messages. `from` is the place in `keys` of the next key of a
-- subscription, and `open` has the participants under their keys `state`. Returns what apply_operation needs, and the
-- place of the next key; or nil and a refusal.
--
-- Refusals: UNLOCKED (some messages are not locked by their tokens now; the detail is their names), DEAD (some messages
--   are dead letters already; the detail is their names)
-- @use check_abandon check_advance check_once check_publish check_send check_state check_transfer
-- @use check_withdraw held_messages lock_groups refuse
local function check_operation(p, keys, name, argv, from, open)
  local plan, refused, groups
  if name == 'send' then
    plan, refused = check_send(p, argv, 1)
  elseif name == 'publish' then
    plan, refused = check_publish(p, keys, argv, 1, from, open)
    from = plan and refused
  elseif name == 'once' then
    plan, refused = check_once(p, argv, 1)
  elseif name == 'advance' then
    plan, refused = check_advance(p, argv)
  elseif name == 'transfer' then
    plan, refused = check_transfer(p, argv, 1)
  elseif name == 'set_state' then
    p.stated = p.stated or {}
    plan, refused = check_state(p, argv, 1)
  elseif name == 'withdraw' then
    plan, refused = check_withdraw(p, argv, 1)
  elseif name == 'abandon' then
    groups, refused = check_abandon(argv, 1)
  elseif name == 'complete' or name == 'renew' or name == 'defer' or name == 'dead_letter' then
    groups = lock_groups(argv, 1, (name == 'complete' or name == 'renew') and 1 or 2)
    refused = not groups and refuse('BADCALL', 'groups')
  else
    refused = refuse('BADCALL', 'operation')
  end
  if groups then
    local lost = {}
    p.seen = p.seen or {}
    plan = held_messages(p, groups, p.seen, lost)
    for g = 1, #groups do
      for i = 1, name == 'dead_letter' and #groups[g].members or 0 do
        if not tonumber(groups[g].members[i]) then
          return nil, refuse('DEAD', groups[g].members[i])
        end
      end
    end
    if #lost > 0 then
      return nil, refuse('UNLOCKED', table.concat(lost, ' '))
    end
    if name == 'renew' then
      plan = { held = plan } -- apart from the settlements, whose messages a later transaction cannot settle again
    end
  end
  if not plan then
    return nil, refused
  end
  return plan, from
end
