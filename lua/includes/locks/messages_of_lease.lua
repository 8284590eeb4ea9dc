-- Returns the messages that a token holds, in the order in which they were given out; if its lease has ended, it
-- returns no messages. The lease of a lock on a session lists no messages. For such a lock the caller passes runs of
-- messages in `said`, and the result is the messages in these runs that the lock still holds.
-- @use read_many
local function messages_of_lease(p, token, said)
  local text = redis.call('HGET', p.leases, token)
  if not text then
    return {}, {}
  end
  local till, _, runs = string.match(text, '^(%d+) (%d+) (.*)$')
  if tonumber(till) <= p.logical then
    return {}, {}
  end
  if string.byte(runs) == 64 then -- @: the lock on a session
    runs = said
  end
  local members = {}
  for prefix, first, last in string.gmatch(runs, '([dt]?)(%d+)%-?(%d*)') do
    for number = tonumber(first), tonumber(last) or tonumber(first) do
      members[#members + 1] = prefix .. string.format('%.0f', number)
    end
  end
  local found = read_many('HMGET', p.entries, members)
  local names, entries = {}, {}
  for i = 1, #members do
    if found[i] and string.sub(found[i], 1, 11) == token then
      names[#names + 1], entries[#entries + 1] = members[i], found[i]
    end
  end
  return names, entries
end
