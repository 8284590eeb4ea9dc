-- Parses the fields of a registry record that scripts need. A record has the form "1 version id incarnation stamps
-- created updated description". The stamps come from the last writes of the record, the newest first, separated by
-- commas. Only Python reads the description; `at` is where it begins.
--
-- Refusals: LAYOUT (another release wrote the data)
-- @use refuse
local function parse_entity(record)
  local version, id, incarnation, stamps, created, updated, at =
    string.match(record, '^1 (%d+) (%w+) (%S+) (%S+) (%d+) (%d+) ()')
  if not version then
    local layout = string.match(record, '^%w+') or 'unknown'
    return nil, refuse('LAYOUT', layout == '1' and 'unreadable' or layout)
  end
  return {
    version = version, id = id, incarnation = incarnation, stamps = stamps, created = created, updated = updated, at = at,
  }
end
