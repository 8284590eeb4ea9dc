-- Returns the index members of one session under one letter, in order, beginning at a message number. It leaves out the
-- first `skip` members and returns at most `most`.
-- @use index_text
local function index_entries(p, session, letter, from, skip, most)
  local place = session .. '\255'
  return redis.call('ZRANGE', p.index, '[' .. place .. letter .. index_text(from),
    '(' .. place .. string.char(string.byte(letter) + 1), 'BYLEX', 'LIMIT', skip, most)
end
