-- Returns the time in ms until something is due once all events of `compute_due` have happened, at least 1; or 0 if
-- nothing will be due. What is due on a topic stays due until a client publishes it.
-- @use never
local function next_due_after(p, o)
  if o.more == 1 then
    return 1
  end
  local lock = redis.call('ZRANGE', p.locks, '(' .. string.format('%.0f', p.logical), '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  local after = p.topic and '-inf' or '(' .. string.format('%.0f', p.now)
  local due = redis.call('ZRANGE', p.due, after, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  local first = o.head
  if lock[2] then
    first = math.min(first, tonumber(lock[2]) - p.offset)
  end
  if due[2] then
    first = math.min(first, tonumber(due[2]))
  end
  for i = 1, #o.moved do
    if o.moved[i].is == 'ready' then
      first = math.min(first, tonumber(o.moved[i].e.expires))
    end
  end
  return first < NEVER and math.max(1, first - p.now) or 0
end
