-- Returns the reply to a repeated receive: the messages that its token holds now, and the time until its lock ends. The
-- lock on a session also holds messages that other calls gave out. For such a lock, `said` lists, as runs, the messages
-- that this call gave out. A token never holds more messages than its call gave out. So the messages that are read here
-- fit into the room of that call. A message of the main side whose record was lost since then is left out.
-- @use delivery_extras lost_record next_due read_records record_of
-- @use messages_of_lease inside
local function repeat_receive(p, token, said)
  local names, entries = messages_of_lease(p, token, said)
  if #names == 0 then
    return { 0, next_due(p), p.lock, {}, {}, {} }
  end
  local numbers, given, found, extras = {}, {}, {}, {}
  for i = 1, #names do
    numbers[i] = record_of(names[i], entries[i])
  end
  local records = read_records(p.keys, numbers)
  for i = 1, #names do
    if records[i] ~= LOST_RECORD or not tonumber(names[i]) then
      local n = #given + 1
      given[n], found[n] = names[i], records[i]
      delivery_extras(extras, n, entries[i])
    end
  end
  local till = tonumber(string.match(redis.call('HGET', p.leases, token), '^%d+'))
  return { 0, 0, till - p.logical, given, found, extras }
end
