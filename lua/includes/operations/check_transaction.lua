-- Checks all operations of a transaction against the stored data, and writes nothing. Returns a refusal, or nil. Each
-- operation gets what apply_operation needs. A check knows what the operations before it in the same transaction will
-- take. This knowledge is in fields of the participants, and begins anew with each transaction.
-- @use check_operation flush refuse refuse_part
local function check_transaction(transaction, participants, keys)
  local from, pending = transaction.from, {}
  for i = 1, #transaction do
    local p = transaction[i].of
    p.seen, p.stated, p.once_keys, p.withdrawn, p.watermarks, p.last_sent = nil, nil, nil, nil, nil, nil
  end
  for i = 1, #transaction do
    local operation = transaction[i]
    local p = operation.of
    if p.refused then
      return refuse_part(i, p.refused)
    end
    if operation.name == 'withdraw' or operation.name == 'publish' and string.find(operation.argv[1] or '', 'o', 1, true) then
      flush(p) -- these operations name messages that earlier transactions may have stored
    end
    p.pending, p.unwritten = pending[p.store], nil
    for j = 1, #participants do
      local other = participants[j]
      if other.store == p.store and other.bytes ~= 0 then
        p.unwritten = (p.unwritten or 0) + other.bytes
      end
    end
    local plan, last = check_operation(p, keys, operation.name, operation.argv, from, participants)
    if not plan then
      return refuse_part(i, last)
    end
    operation.plan, from = plan, last
    pending[p.store] = (p.pending or 0) + (plan.growth or plan.bytes or plan.incoming and plan.incoming.bytes or 0)
  end
  return from ~= transaction.till and refuse('BADCALL', 'targets') or nil
end
