-- Returns the names of the messages that the index has of one session under one letter, in order, beginning at a
-- message number. It leaves out the first `skip` messages and returns at most `most`.
-- @use index_name index_text
local function session_messages(p, session, letter, from, skip, most)
  local place = session .. '\255'
  local found = redis.call('ZRANGE', p.index, '[' .. place .. letter .. index_text(from),
    '(' .. place .. string.char(string.byte(letter) + 1), 'BYLEX', 'LIMIT', skip, most)
  for i = 1, #found do
    found[i] = index_name(found[i])
  end
  return found
end
