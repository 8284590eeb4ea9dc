-- Checks the keys that a transaction remembers, from `at` on: for each key its window in ms, and then the key. Returns
-- what apply_once needs; or nil and a refusal. A partition knows a key until its window ends.
--
-- Refusals: KNOWN (the partition knows a key already; the detail is its index, counted from 0), BADCALL
-- Facts: freeing
-- @use never
-- @use refuse whole_number inside
local function check_once(p, argv, at)
  local keys, ends, size, twice, old = {}, {}, 0, p.once_keys or {}, {}
  for i = at, #argv, 2 do
    local window, key = whole_number(argv[i], 1, NEVER), argv[i + 1] or ''
    if not window or #key < 1 or #key > 512 or twice[key] or #keys == 100 then
      return nil, refuse('BADCALL', 'once')
    end
    twice[key], keys[#keys + 1], ends[#ends + 1], size = true, key, p.now + window, size + #key
  end
  local known = redis.call('ZMSCORE', p.once, unpack(keys))
  for i = 1, #keys do
    if known[i] and tonumber(known[i]) > p.now then
      return nil, refuse('KNOWN', string.format('%d', i - 1))
    end
    old[#old + 1] = known[i] and keys[i] or nil
  end
  p.once_keys = twice
  return { keys = keys, ends = ends, size = size, old = old }
end
