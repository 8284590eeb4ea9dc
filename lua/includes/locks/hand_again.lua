-- The reply of a receive that is repeated: what its token holds now, with the time that is left. The lock on a session holds
-- what other calls have given out as well: then `said` are the messages, as runs, that this one gave out. A token never comes to
-- hold more than its call gave out, so the room of that call bounds what is read here.
-- @use delivery_extras leased next_due record_of records
local function hand_again(p, token, said)
  local names, entries = leased(p, token, said)
  if #names == 0 then
    return { 0, next_due(p), p.lock, {}, {}, {} }
  end
  local numbers, extras = {}, {}
  for i = 1, #names do
    numbers[i] = record_of(names[i], entries[i])
    delivery_extras(extras, i, entries[i])
  end
  local till = tonumber(string.match(redis.call('HGET', p.leases, token), '^%d+'))
  return { 0, 0, till - p.logical, names, records(p.keys, numbers), extras }
end
