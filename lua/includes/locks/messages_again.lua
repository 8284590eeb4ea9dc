-- Returns the messages that a token holds now, to show them again: their names, their records, what delivery_extras
-- adds for some of them, the end of their lock, and the number of their bytes. The lock on a session also holds
-- messages that other calls gave out. For such a lock, `said` lists, as runs, the messages that this call gave out. A
-- message of the main side whose record was lost since then is left out.
-- @use delivery_extras lost_record messages_of_lease read_records record_of
local function messages_again(p, token, said)
  local names, entries = messages_of_lease(p, token, said)
  local numbers, given, found, extras, size = {}, {}, {}, {}, 0
  for i = 1, #names do
    numbers[i] = record_of(names[i], entries[i])
  end
  local records = #names > 0 and read_records(p.keys, numbers) or {}
  for i = 1, #names do
    if records[i] ~= LOST_RECORD or not tonumber(names[i]) then
      local n = #given + 1
      given[n], found[n] = names[i], records[i]
      size = size + #records[i] + delivery_extras(extras, n, entries[i])
    end
  end
  local till = #names > 0 and tonumber(string.match(redis.call('HGET', p.leases, token), '^%d+')) or 0
  return given, found, extras, till, size
end
