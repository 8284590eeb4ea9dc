-- Returns the holders, with open grants, of the sessions in which something has changed: their words, each with the
-- number of messages that it may get. Notes in a word whether its session is empty: nothing is ready, and its holder
-- has nothing.
-- @use count_held open_credit rank_of read_many ready_count words_of
local function roused_holders(p)
  local c, sessions, tokens, keys, holders = open_credit(p), {}, {}, {}, {}
  for session in pairs(p.roused or {}) do
    sessions[#sessions + 1], tokens[#tokens + 1] = session, '!' .. session
  end
  tokens = read_many('HMGET', p.states, tokens)
  for i = 1, #sessions do
    keys[#keys + 1] = tokens[i] and tokens[i] .. ' =' .. sessions[i] or nil
  end
  words_of(p, keys)
  for i = 1, #keys do
    local w = c.words[keys[i]]
    if w and rank_of(c, w, p.now) then
      local left = ready_count(p, w)
      local empty = left == 0 and count_held(p, w.session) == 0
      if w.empty ~= empty then
        w.empty, c.dirty[w.key] = empty, w
      end
      holders[#holders + 1] = { w = w, left = left }
    end
  end
  return holders
end
