-- Returns the entries of the first of these messages: of all that fit into `room` bytes, and perhaps of some more; at
-- least one. An entry with changed properties can be as long as a message. So entries are read in parts until there is
-- no room, unless messages as large as the largest that the partition has had would all fit. Most messages have no
-- entry, so for many messages it is first asked whether there are any: for a few, that would cost more than it saves.
-- @use changes_size read_many sentinel
local function read_entries(p, members, room)
  local n = #members
  if n > 16 and redis.call('HLEN', p.entries) <= redis.call('HEXISTS', p.entries, SENTINEL.name) then -- the usual case
    local none = {}
    for i = 1, n do
      none[i] = false
    end
    return none
  end
  if n * p.biggest <= room then
    return read_many('HMGET', p.entries, members)
  end
  local entries, at = {}, 0
  while at < n and (at == 0 or room > 0) do
    local part = read_many('HMGET', p.entries, { unpack(members, at + 1, math.min(at + 50, n)) })
    for i = 1, #part do
      at = at + 1
      entries[at], room = part[i], room - changes_size(part[i])
    end
  end
  return entries
end
