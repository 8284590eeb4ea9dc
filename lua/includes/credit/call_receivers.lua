-- Calls receivers, if messages or free sessions are ready and no receiver has an open grant for them. Only a partition
-- of an entity that has many of them calls, because a receiver is not at all of them. It calls on the channel that has
-- the name of its key `state`: with m, d and t for the sides, and n for free sessions. As long as nothing changes, it
-- calls once a second at most, whatever becomes ready. The field `called` has the time of the last call, and what it
-- has told.
-- @use open_credit ranks ready_count
local function call_receivers(p)
  local c, ready = open_credit(p), ''
  for source, letter in ipairs({ 'm', 'd', 't', 'n' }) do
    local word = { source = source == 4 and 'next' or source == 1 and '' or letter }
    local given = source > 1 and source < 4 or not (p.forwards or p.reserved) and (source == 4) == (p.index ~= nil)
    local low = source * RANKS.source
    if given and ready_count(p, word) > 0
      and not (c.open and redis.call('ZCOUNT', p.grants, low, low + RANKS.source - 1) > 0) then
      ready = ready .. letter
    end
  end
  local time, told = string.match(redis.call('HGET', p.state, 'called') or '', '^(%d+) (%a*)$')
  if ready == '' then
    if told and told ~= '' then
      p.changed.called = ''
    end
  elseif not told or p.now - tonumber(time) >= 1000 or string.find(ready, '[^' .. told .. '.]') then
    redis.call('SPUBLISH', p.state, ready)
    p.changed.called = string.format('%.0f ', p.now) .. ready
  end
end
