-- Returns the number of free sessions that nobody can take: no open grant of free sessions answers.
-- @use open_grants ready_count
local function waiting_sessions(p)
  local next_grant = open_grants(p, 4)
  return next_grant(1) and 0 or ready_count(p, { source = 'next' })
end
