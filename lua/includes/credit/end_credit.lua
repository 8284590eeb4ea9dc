-- Ends all credit of a partition, because its settings have changed: the next call of a receiver learns why. Tells the
-- first 16 receivers; each later call tells as many.
-- @use open_credit serve_credit
local function end_credit(p)
  local c = open_credit(p)
  c.ends, c.keeper, c.deputy, c.untold = c.ends + 1, '', '', c.open or c.untold
  if c.untold then
    redis.call('ZUNIONSTORE', p.grants, 1, p.grants, 'WEIGHTS', 0)
  end
  serve_credit(p)
end
