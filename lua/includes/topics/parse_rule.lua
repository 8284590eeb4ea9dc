-- Parses the fields of a stored rule that scripts need. The text is `2 kind stamp created description`. The 2 is the
-- layout. The kind of the filter is s for SQL, c for correlation, or t for a filter that is not counted. Each change of
-- the rule gives it a new stamp. Only Python reads the description.
--
-- Refusals: LAYOUT (the rule cannot be read; the detail has the layout and the place)
-- @use refuse_unreadable
local function parse_rule(text, place)
  local kind, stamp, created = string.match(text, '^2 ([sct]) (%S+) (%d+) ')
  if not kind then
    return nil, refuse_unreadable('rule', text, place)
  end
  return { kind = kind, stamp = stamp, created = created, sql = kind == 's' and 1 or 0, correlation = kind == 'c' and 1 or 0 }
end
