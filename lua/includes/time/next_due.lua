-- Returns the time in ms until something is due in the partition, at least 1; or 0 if nothing will be due.
-- @use never
local function next_due(p)
  local lock = redis.call('ZRANGE', p.locks, 0, 0, 'WITHSCORES')
  local due = redis.call('ZRANGE', p.due, 0, 0, 'WITHSCORES')
  local first = p.head
  if lock[2] then
    first = math.min(first, tonumber(lock[2]) - p.offset)
  end
  if due[2] then
    first = math.min(first, tonumber(due[2]))
  end
  return first < NEVER and math.max(1, first - p.now) or 0
end
