-- Adds a message to the index of sessions, the key `sessions`, where all scores are the same. A member is the session, the byte
-- 255, which is in no UTF-8, a letter and the message's number as text. So the messages of a session are together, by what they do
-- and then in their order: a can be received, h is held by the holder of the session, p is deferred, s is scheduled. k is without
-- a number, for a session that has a state. Listing sessions relies on the order of these letters.
-- @use index_text
local function index_add(p, session, letter, number)
  p.index_added[#p.index_added + 1] = 0
  p.index_added[#p.index_added + 1] = session .. '\255' .. letter .. index_text(number)
end
