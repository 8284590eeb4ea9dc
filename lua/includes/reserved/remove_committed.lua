-- Removes a share of the committed messages, those up to the floor of the pin: up to 1,000 messages or 2 MB. Returns
-- whether there were any; then more may be left.
-- @use delete_moved drop_record message_sizes read_entries ready_messages
local function remove_committed(p, pin)
  local names = ready_messages(p, 0, pin.floor, 1000)
  if #names == 0 then
    return false
  end
  local entries = read_entries(p, names, 2097152)
  local sizes = message_sizes(p, { unpack(names, 1, #entries) }, entries, 2097152)
  for i = 1, #sizes do
    if entries[i] then
      delete_moved(p, names[i], entries[i])
    else
      p.taken[#p.taken + 1] = names[i]
      drop_record(p, names[i], sizes[i], 0)
    end
    if p.noted then
      p.noted[#p.noted + 1] = 'c' .. names[i]
    end
  end
  return true
end
