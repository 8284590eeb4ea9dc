-- Parses the fields of a stored rule that scripts need. The text is `1 kind stamp created description`. The 1 is the
-- layout. The kind of the filter is s for SQL, c for correlation, or t for a filter that is not counted. Each change of
-- the rule gives it a new stamp. Only Python reads the description.
--
-- Refusals: LAYOUT (another release wrote the data)
-- @use refuse
local function parse_rule(text)
  local kind, stamp, created = string.match(text, '^1 ([sct]) (%S+) (%d+) ')
  if not kind then
    local layout = string.match(text, '^%w+') or 'unknown'
    return nil, refuse('LAYOUT', layout == '1' and 'unreadable' or layout)
  end
  return { kind = kind, stamp = stamp, created = created, sql = kind == 's' and 1 or 0, correlation = kind == 'c' and 1 or 0 }
end
