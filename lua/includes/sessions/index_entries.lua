-- What stands in `sessions` of one session under one letter, in order, from a number on, after the first so many of them.
-- @use index_text
local function index_entries(p, session, letter, from, skip, most)
  local place = session .. '\255'
  return redis.call('ZRANGE', p.seats, '[' .. place .. letter .. index_text(from),
    '(' .. place .. string.char(string.byte(letter) + 1), 'BYLEX', 'LIMIT', skip, most)
end
