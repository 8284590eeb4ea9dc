-- Applies one operation of a transaction, as check_operation has checked it. Returns its result as text.
-- @use apply_advance apply_complete apply_dead_letter apply_once apply_publish apply_release apply_renew apply_send
-- @use apply_state apply_transfer apply_withdraw
local function apply_operation(p, name, argv, plan)
  if name == 'send' or name == 'publish' then
    local apply = name == 'send' and apply_send or apply_publish
    local first, dropped, scheduled = apply(p, argv, plan)
    p.last_sent = name == 'send' and first + plan.count - 1 or p.last_sent
    return string.format('%.0f;%s;', first, table.concat(dropped, ' ')) .. (scheduled or '')
  elseif name == 'once' then
    return string.format('%d', apply_once(p, plan))
  elseif name == 'advance' then
    return string.format('=%.0f', apply_advance(p, plan))
  elseif name == 'transfer' then
    apply_transfer(p, argv, plan)
  elseif name == 'set_state' then
    apply_state(p, plan)
  elseif name == 'withdraw' then
    apply_withdraw(p, plan)
  elseif name == 'renew' then
    return table.concat({ string.format('~%.0f', p.lock), unpack(apply_renew(p, plan.held)) }, ' ')
  elseif name == 'complete' then
    apply_complete(p, plan)
  elseif name == 'abandon' then
    apply_release(p, plan, argv, argv[1])
  elseif name == 'defer' then
    apply_release(p, plan, argv, 'f')
  else
    apply_dead_letter(p, plan, argv)
  end
  return ''
end
