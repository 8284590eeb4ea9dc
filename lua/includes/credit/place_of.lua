-- Returns the place of a source among the ranks: sources are served one after the other. All held sessions have the
-- last place.
-- @remember 64
local function place_of(source)
  return source == '' and 1 or source == 'd' and 2 or source == 't' and 3 or source == 'next' and 4 or 5
end
