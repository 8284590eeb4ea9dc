-- Tells the receivers with open grants that the partition is being deleted: up to 1,000 of them.
-- @use push_to words_of
local function dismiss_receivers(p)
  local keys = redis.call('ZRANGE', p.grants, 0, 999)
  words_of(p, keys)
  for i = 1, #keys do
    local w = p.credits.words[keys[i]]
    if w then
      push_to(p, w)
    end
  end
end
