-- Notes in the log of a bucket that the records at these paths have changed, and announces it to the clients that
-- maintain the namespace. Each path has one entry, that of its latest change, so the log is as long as the list of
-- entities. The paths of deleted entities are also in the log, but at most 1,000: a longer log loses the oldest of
-- them, and `floor` becomes their number. A client that has read the log less far than that reads it from the
-- beginning. `gone` says that the entity is being removed.
-- @use next_number
local function note_changes(keys, n, process, paths, gone)
  local entries = {}
  for i = 1, #paths do
    entries[2 * i - 1] = string.format('%.0f', next_number(n, process))
    entries[2 * i] = paths[i]
  end
  redis.call('ZADD', keys[9], unpack(entries))
  redis.call('HSET', keys[1], 'last', string.format('%.0f', n.last), 'run_id', n.run_id)
  if gone then
    redis.call('ZADD', keys[10], entries[1], paths[1])
    if redis.call('ZCARD', keys[10]) > 1000 then
      local oldest = redis.call('ZRANGE', keys[10], 0, 0, 'WITHSCORES')
      redis.call('ZREM', keys[10], oldest[1])
      redis.call('ZREM', keys[9], oldest[1])
      redis.call('HSET', keys[1], 'floor', string.format('%.0f', tonumber(oldest[2])))
    end
  end
  redis.call('SPUBLISH', n.channel, keys[1] .. ' changed')
end
