-- Refuses a call that would add entities, or megabytes, to a namespace with limits, unless the caller has checked the
-- limits. A bucket knows only whether there are limits. What entities have already may be over a limit that was set
-- later, so a call that adds nothing is not refused.
--
-- Refusals: LIMITED (the detail has the numbers of entities and megabytes that the call would add)
-- @use refuse
local function refuse_unchecked(n, checked, entities, megabytes)
  if n.limited and checked ~= '1' and (entities > 0 or megabytes > 0) then
    return refuse('LIMITED', string.format('%.0f %.0f', entities, math.max(0, megabytes)))
  end
end
