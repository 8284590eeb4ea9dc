-- Returns the keys of the open grants of a source in the order of their ranks, at most 32 of them. The first 32 of all
-- sources are read once. The call may have changed the ranks of some since then. Source 0 has the receivers that were
-- not told of an end.
-- @use open_credit rank_of ranks
local function ranked_keys(p, source)
  local c, low, range = open_credit(p), source * RANKS.source, RANKS.source
  if not c.stored then
    c.stored = redis.call('ZRANGE', p.grants, 0, 31, 'WITHSCORES')
    c.count = #c.stored < 64 and #c.stored / 2 or nil
  end
  local stored = c.stored
  if #stored == 64 then
    stored = redis.call('ZRANGE', p.grants, low, low + range - 1, 'BYSCORE', 'LIMIT', 0, 32, 'WITHSCORES')
  end
  local ranks, keys = {}, {}
  for i = 1, #stored, 2 do
    local key, rank = stored[i], tonumber(stored[i + 1])
    if rank >= low and rank < low + range and not c.dirty[key] then
      keys[#keys + 1], ranks[key] = key, rank
    end
  end
  for key, w in pairs(c.dirty) do
    local rank = rank_of(c, w, p.now) or low > 0 and -1 or w.untold and 0 or -1
    if rank >= low and rank < low + range then
      keys[#keys + 1], ranks[key] = key, rank
    end
  end
  table.sort(keys, function(one, other)
    if ranks[one] ~= ranks[other] then
      return ranks[one] < ranks[other]
    end
    return one < other
  end)
  return keys
end
