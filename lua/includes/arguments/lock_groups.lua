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
    local members, from = {}, at + 2 - columns
    for i = 1, count do
      local member = argv[from + i * columns]
      if #member > 16 then
        return nil
      end
      members[i] = member
    end
    -- Check all names together. Most often all of them are numbers without a prefix. Otherwise nothing may be left
    -- after the well-formed names are removed.
    local said = ',' .. table.concat(members, ',') .. ','
    local plain = not (string.find(table.concat(members), '%D') or string.find(said, ',0', 1, true)
      or string.find(said, ',,', 1, true))
    if count > 0 and not plain then
      local rest, found = string.gsub(said, ',[dt]?[1-9]%d*', '')
      if rest ~= ',' or found ~= count then
        return nil
      end
    end
    list[#list + 1] = { token = token, members = members, at = at + 2, columns = columns, plain = plain }
    at = at + 2 + count * columns
  end
  return total > 0 and total <= 1000 and list or nil, at
end
