-- Applies all operations of a transaction, as check_transaction has checked them. Adds the subscriptions that get
-- copies and do not take part to `targets`. Returns the results of the operations as text. The changes are collected,
-- and are written when the call ends; a check of a later transaction of the call knows the settled messages from
-- `settled`.
-- @use apply_operation
local function apply_transaction(transaction, targets)
  local text, moving = '', false
  for i = 1, #transaction do
    local operation = transaction[i]
    moving = moving or operation.name == 'withdraw'
    local p, held = operation.of, operation.plan
    for g = 1, #held do
      local names = held[g].names
      p.settled = p.settled or {}
      for j = 1, #names do
        p.settled[names[j]] = true
      end
    end
  end
  for i = 1, #transaction do
    local operation = transaction[i]
    operation.of.upkeep = operation.of.upkeep and moving
    text = text .. apply_operation(operation.of, operation.name, operation.argv, operation.plan) .. '|'
    local subscriptions = operation.plan.subscriptions
    for j = 1, subscriptions and #subscriptions or 0 do
      local target = subscriptions[j]
      if not target.keys and not targets[target] then
        targets[target], targets[#targets + 1] = true, target
      end
    end
  end
  return text
end
