-- Notes that a message stands in `sessions`, where all scores are the same: its session, the byte 255, which is in no UTF-8,
-- a letter and its number as text. So the messages of a session stand together, by what they do and then in their order:
-- a can be received, h held by who has the session, p put aside until asked for by number, s scheduled. k stands without a
-- number for a session that has a state. What lists sessions relies on the order of these letters.
-- @use index_text
local function index_add(p, session, letter, number)
  p.seated[#p.seated + 1] = 0
  p.seated[#p.seated + 1] = session .. '\255' .. letter .. index_text(number)
end
