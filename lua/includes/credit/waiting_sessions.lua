-- Returns the number of free sessions that nobody can take: no open grant of free sessions answers.
-- @use open_credit ranked_keys rank_of ready_count words_of
local function waiting_sessions(p)
  local c, keys = open_credit(p), ranked_keys(p)[4]
  words_of(p, keys)
  for i = 1, #keys do
    local w = c.words[keys[i]]
    if w and rank_of(c, w, p.now) then
      return 0
    end
  end
  return ready_count(p, { source = 'next' })
end
