-- Parses the fields of a registry record that scripts need. A record has the form "2 version id incarnation stamps
-- created updated description". The stamps come from the last writes of the record, the newest first, separated by
-- commas. Only Python reads the description; `at` is where it begins.
--
-- Refusals: LAYOUT (there is no record, or it cannot be read; the detail has the layout and the name)
-- @use refuse_unreadable
local function parse_entity(record, name)
  local version, id, incarnation, stamps, created, updated, at =
    string.match(record or '', '^2 (%d+) (%w+) (%S+) (%S+) (%d+) (%d+) ()')
  if not version then
    return nil, refuse_unreadable('record', record, name)
  end
  return {
    version = version, id = id, incarnation = incarnation, stamps = stamps, created = created, updated = updated, at = at,
  }
end
