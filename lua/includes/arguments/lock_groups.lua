-- Parses the messages of a settlement: each group is the token of a lease, a number of messages, and for each of these
-- messages `columns` arguments, of which the first is its name. With `whole`, a group may name no messages, and then
-- its token may be the key of a single message's lease. Returns nil if the arguments are malformed or contain too many
-- messages for one call. With `grants`, grants may follow the groups, and the second result is the place of the first
-- one: a grant has blanks, and a token has none.
-- @use parse_token whole_number
local function lock_groups(argv, at, columns, whole, grants)
  local list, total = {}, 0
  while at <= #argv and not (grants and string.find(argv[at], ' ', 1, true)) do
    local token, count = parse_token(argv[at], whole), whole_number(argv[at + 1] or '', whole and 0 or 1, 1000)
    if not token or not count or #token > 11 and count > 0 or at + 1 + count * columns > #argv then
      return nil
    end
    total = total + math.max(count, 1)
    local group = { token = token, members = {}, at = at + 2, columns = columns }
    for i = 1, count do
      local member = argv[at + 2 + (i - 1) * columns]
      if #member > 16 then
        return nil
      end
      group.members[i] = member
    end
    -- Check all names together: after the well-formed names are removed, nothing may be left.
    local rest, found = string.gsub(',' .. table.concat(group.members, ','), ',[dt]?[1-9]%d*', '')
    if count > 0 and (rest ~= '' or found ~= count) then
      return nil
    end
    list[#list + 1] = group
    at = at + 2 + count * columns
  end
  return total > 0 and total <= 1000 and list or nil, at
end
