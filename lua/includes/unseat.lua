-- Takes a message of a session from where it stands in `sessions` under this letter.
-- @use seat_text
local function unseat(p, session, letter, number)
  p.unseated[#p.unseated + 1] = session .. '\255' .. letter .. seat_text(number)
end
