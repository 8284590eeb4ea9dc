-- Returns the id of a new entity, as text and as a number, and the run id of the server process that gave it. No other
-- entity has had this id or will have it. After a change of the server process the ids jump ahead, because a failover
-- may have lost the last ids that were given.
-- @use base36
local function next_id(n, process)
  local LEAP = 46656
  local id, run_id = n.last_id + 1, n.run_id
  if process ~= '?' then
    if run_id ~= '?' and run_id ~= process then
      id = n.last_id + LEAP
    end
    run_id = process
  end
  return base36(id), string.format('%.0f', id), run_id
end
