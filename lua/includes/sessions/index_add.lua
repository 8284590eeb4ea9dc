-- Adds a message to the index of sessions, the key `sessions`, in which all scores are the same. A member is the
-- session, the byte 255 (which is in no UTF-8 text), a letter, and the message's number as text. So the messages of a
-- session are together, ordered by letter and then by number. The letters mean: a, the message can be received; h, it
-- is held by the holder of the session; p, it is deferred; s, it is scheduled. The letter k, without a number, is for a
-- session that has a state. Listing sessions relies on the order of these letters.
-- @use add_pair index_text
local function index_add(p, session, letter, number)
  add_pair(p.index_added, 0, session .. '\255' .. letter .. index_text(number))
end
