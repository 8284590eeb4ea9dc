-- Notes when the word with this key, which begins, may be forgotten; and forgets some words whose time is over.
-- @use open_credit words_of
local function begin_word(p, begins)
  local c = open_credit(p)
  local some, later = redis.call('ZRANGE', p.kept, 0, p.now, 'BYSCORE', 'LIMIT', 0, 10), { p.now + 70000, begins }
  local keys, gone = {}, {}
  for i = 1, #some do
    local list = string.find(some[i], ' ', 1, true) and keys or gone -- an earlier prefix has no blank
    list[#list + 1] = some[i]
  end
  words_of(p, keys)
  for i = 1, #keys do
    local w = c.words[keys[i]]
    local open = w and (w.limit > w.messages or w.announced)
    local till = w and math.max(open and w.open_until or 0, w.forget_at, w.untold and p.now + 10000 or 0) or 0
    if till > p.now then
      later[#later + 1], later[#later + 2] = till, keys[i]
    elseif keys[i] ~= begins then
      gone[#gone + 1], c.words[keys[i]], c.dirty[keys[i]] = keys[i], false, nil
      if w then
        gone[#gone + 1] = w.prefix
      end
    end
  end
  if #gone > 0 then
    redis.call('HDEL', p.words, unpack(gone))
    redis.call('ZREM', p.kept, unpack(gone))
  end
  redis.call('ZADD', p.kept, unpack(later))
end
