-- Takes apart the messages of a settlement: groups of a token, a count, and for each message its name and `columns` - 1
-- things more. Nil if they cannot be that, or are more than a call may carry.
-- @use parse_token whole_number
local function lock_groups(argv, at, columns)
  local list, total = {}, 0
  while at <= #argv do
    local token, count = parse_token(argv[at]), whole_number(argv[at + 1] or '', 1, 1000)
    if not token or not count or at + 1 + count * columns > #argv then
      return nil
    end
    total = total + count
    local group = { token = token, members = {}, at = at + 2, columns = columns }
    for i = 1, count do
      local member = argv[at + 2 + (i - 1) * columns]
      if #member > 16 then
        return nil
      end
      group.members[i] = member
    end
    -- All names at once: whatever is left when the well-formed ones are taken away is none.
    local rest, found = string.gsub(',' .. table.concat(group.members, ','), ',d?[1-9]%d*', '')
    if rest ~= '' or found ~= count then
      return nil
    end
    list[#list + 1] = group
    at = at + 2 + count * columns
  end
  return total > 0 and total <= 1000 and list or nil
end
