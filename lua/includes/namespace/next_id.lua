-- The id of a new entity, which no other has had or will have, in the form in which it is kept and as a number, and the process
-- that gave it. After a change of the server process the ids go on a good way further up: a failover may have lost the last
-- ones that were given.
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
