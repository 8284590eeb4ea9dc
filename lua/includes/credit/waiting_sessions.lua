-- Returns the number of free sessions that nobody can take: no open grant of free sessions answers.
-- @use open_grants ready_count
local function waiting_sessions(p)
  local free = ready_count(p, { source = 'next' })
  return free > 0 and open_grants(p, 4)(1) and 0 or free
end
