-- Returns the message names in the arguments; or nil if a name is malformed or occurs twice, or if there are too many
-- names.
local function message_names(argv, at)
  local list, seen = {}, {}
  for i = at, #argv do
    local name = argv[i]
    if not string.find(name, '^[dt]?[1-9]%d*$') or #name > 16 or seen[name] then
      return nil
    end
    seen[name] = true
    list[#list + 1] = name
  end
  return #list > 0 and #list <= 1000 and list or nil
end
