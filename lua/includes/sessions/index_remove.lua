-- Removes a message of a session from the index, from under one letter.
-- @use index_text
local function index_remove(p, session, letter, number)
  p.index_removed[#p.index_removed + 1] = session .. '\255' .. letter .. index_text(number)
end
