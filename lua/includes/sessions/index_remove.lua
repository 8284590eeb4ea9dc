-- Takes a message of a session from where it stands in `sessions` under this letter.
-- @use index_text
local function index_remove(p, session, letter, number)
  p.unseated[#p.unseated + 1] = session .. '\255' .. letter .. index_text(number)
end
