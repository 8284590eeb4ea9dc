-- Ends a settlement and takes the grants that it carries. Returns its reply. A repetition answers the grants too,
-- because the numbers of the grants are known. `said` is the result for the lane. With `gave_back`, the call has
-- released messages.
-- @use advance answer_repetition finish take_grants
local function end_settlement(p, said, reply, grants, gave_back)
  if p.repeated and #grants == 0 then
    return answer_repetition(p, reply)
  end
  if #grants > 0 then
    if p.repeated then
      advance(p, 100)
    end
    reply[3] = reply[3] or {}
    reply[4] = take_grants(p, grants, gave_back)
  end
  finish(p, said)
  reply[1] = p.more
  return reply
end
