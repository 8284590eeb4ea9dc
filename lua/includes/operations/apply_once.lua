-- Remembers the keys of a transaction, as check_once has checked them. Returns the number of other keys that the
-- partition had to forget before their windows ended.
--
-- A partition remembers up to 100,000 keys of up to 8 MB together. If there is no room for the new keys, it forgets
-- the keys whose windows end first. In `state`, `once_bytes` is the size of all keys, and `once_forgotten` counts the
-- keys that were forgotten too early. Each call also deletes keys whose windows have ended: at most 100 more than it
-- adds.
-- @use write_many
local function apply_once(p, plan)
  local stored, count = redis.call('HMGET', p.state, 'once_bytes', 'once_forgotten'), redis.call('ZCARD', p.once)
  local size, early = p.changed.once_bytes or tonumber(stored[1]), 0
  local function forget(list)
    for i = 1, #list do
      size, count = size - #list[i], count - 1
    end
    write_many('ZREM', p.once, list)
  end
  forget(plan.old)
  forget(redis.call('ZRANGE', p.once, '-inf', p.now, 'BYSCORE', 'LIMIT', 0, 100 + #plan.keys))
  while count > 0 and (count + #plan.keys > 100000 or size + plan.size > 8388608) do
    local first = redis.call('ZRANGE', p.once, 0, math.min(99, math.max(9, count + #plan.keys - 100001)), 'WITHSCORES')
    local list = {}
    for i = 1, #first, 2 do
      list[#list + 1] = first[i]
      early = early + (tonumber(first[i + 1]) > p.now and 1 or 0)
    end
    forget(list)
  end
  local added = {}
  for i = 1, #plan.keys do
    added[2 * i - 1], added[2 * i] = plan.ends[i], plan.keys[i]
  end
  write_many('ZADD', p.once, added)
  p.changed.once_bytes = size + plan.size
  if early > 0 then
    p.changed.once_forgotten = (p.changed.once_forgotten or tonumber(stored[2])) + early
  end
  return early
end
