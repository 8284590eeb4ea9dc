-- Takes the field `credit` of a partition apart, without its first words. Returns a table with the fields that
-- open_credit explains, and with `known`: whether there is any credit. Nobody changes this table. It is the metatable
-- of the one that calls change.
-- @remember 256
local function parse_credit(text)
  local epochs, ends, open, rest, untold, keeper_at, deputy_at, asked, keeper_client, deputy_client, length, keys =
    string.match(text, '^(%d+) (%d+) (%d)(%d)(%d) (%d+) (%d+) (%d+) (%S*) (%S*) (%d+) (.*)$')
  local parsed = {
    known = epochs ~= nil, epochs = (epochs or 0) + 0, ends = (ends or 0) + 0, open = open == '1',
    rest = rest == '1', untold = untold == '1', keeper_at = (keeper_at or 0) + 0, deputy_at = (deputy_at or 0) + 0,
    asked = (asked or 0) + 0,
    keeper_client = keeper_client or '', deputy_client = deputy_client or '',
    keeper = keys and string.sub(keys, 1, length) or '', deputy = keys and string.sub(keys, length + 1) or '',
  }
  parsed.__index = parsed
  return parsed
end
