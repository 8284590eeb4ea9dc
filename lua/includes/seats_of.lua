-- What stands in `sessions` of one session under one letter, in order, from a number on, after the first so many of them.
-- @use seat_text
local function seats_of(p, session, letter, from, skip, most)
  local place = session .. '\255'
  return redis.call('ZRANGE', p.seats, '[' .. place .. letter .. seat_text(from),
    '(' .. place .. string.char(string.byte(letter) + 1), 'BYLEX', 'LIMIT', skip, most)
end
