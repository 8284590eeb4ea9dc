-- Returns the reply to a repeated receive: the messages that its token holds now, and the time until its lock ends. The
-- lock on a session also holds messages that other calls gave out. For such a lock, `said` lists, as runs, the messages
-- that this call gave out. A token never holds more messages than its call gave out. So the messages that are read here
-- fit into the room of that call.
-- @use delivery_extras next_due read_records record_of
-- @use messages_of_lease inside
local function repeat_receive(p, token, said)
  local names, entries = messages_of_lease(p, token, said)
  if #names == 0 then
    return { 0, next_due(p), p.lock, {}, {}, {} }
  end
  local numbers, extras = {}, {}
  for i = 1, #names do
    numbers[i] = record_of(names[i], entries[i])
    delivery_extras(extras, i, entries[i])
  end
  local till = tonumber(string.match(redis.call('HGET', p.leases, token), '^%d+'))
  return { 0, 0, till - p.logical, names, read_records(p.keys, numbers), extras }
end
