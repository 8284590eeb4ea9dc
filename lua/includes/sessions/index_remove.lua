-- Removes the index member that a message of a session has under one letter.
-- @use index_text
local function index_remove(p, session, letter, number)
  p.index_removed[#p.index_removed + 1] = session .. '\255' .. letter .. index_text(number)
end
