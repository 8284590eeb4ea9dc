-- Takes the field `settings` of a partition apart. Returns a table that has each setting under its name, with its type,
-- and the texts `incarnation` and `version`; or nil if the text is no such field. Nobody changes this table. As the
-- metatable of another table, it lends its settings to that table.
-- @remember 256
local function parse_settings(text)
  local w = { WORDS.match(text) }
  if not w[1] then
    return nil
  end
  local set = { incarnation = w[WORDS.incarnation], version = w[WORDS.version], WORDS.settings(w) }
  set.__index = set
  return set
end
