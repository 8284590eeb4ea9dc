-- Returns the next number of a bucket. Ids of entities are made of these numbers, and changes are counted by them. No
-- number is given twice: after a change of the server process the numbers jump ahead, because a failover may have lost
-- the last ones. The caller writes `last` and `run_id`.
local function next_number(n, process)
  local LEAP = 46656
  n.last = n.last + 1
  if process ~= '?' then
    if n.run_id ~= '?' and n.run_id ~= process then
      n.last = n.last + LEAP - 1
    end
    n.run_id = process
  end
  return n.last
end
