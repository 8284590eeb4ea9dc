-- Returns the number of messages, or of free sessions, that are ready for a word. On a side, suspects count too.
-- @use count_held most_held side_named turns
local function ready_count(p, w)
  if w.source == 'next' then
    return redis.call('ZCOUNT', p.turns, TURNS.free, TURNS.locked - 1)
  elseif not w.session then
    local side = side_named[w.source]
    return redis.call('ZCOUNT', p.order, side.from, side.to)
  end
  local place = w.session .. '\255'
  local ready = redis.call('ZLEXCOUNT', p.index, '[' .. place .. 'a', '(' .. place .. 'b')
  if ready == 0 or tonumber(redis.call('HGET', p.states, '~' .. w.session) or 0) > p.now then
    return 0
  end
  return math.max(0, math.min(ready, MOST_HELD - count_held(p, w.session)))
end
