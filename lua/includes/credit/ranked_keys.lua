-- Returns the keys of the open grants: for each source a list in the order of their ranks, which has at most 32 of
-- them. The key `grants` is read once; the call may have changed the ranks of some words since then. Source 0 has the
-- receivers that were not told of an end, 1 to 3 the sides, 4 free sessions, and 5 all held sessions.
-- @use open_credit rank_of ranks
local function ranked_keys(p)
  local c = open_credit(p)
  local stored = c.stored
  if not stored then
    stored = redis.call('ZRANGE', p.grants, 0, 31, 'WITHSCORES')
    c.count = #stored < 64 and #stored / 2 or nil
    for source = 0, c.count and -1 or p.index and 5 or 3 do
      local low = source * RANKS.source
      local some = redis.call('ZRANGE', p.grants, low, low + RANKS.source - 1, 'BYSCORE', 'LIMIT', 0, 32, 'WITHSCORES')
      for i = 1, #some do
        stored[source * 64 + i] = some[i]
      end
    end
    c.stored = stored
  end
  local lists, ranks = { [0] = {}, {}, {}, {}, {}, {} }, {}

  local function put(key, rank)
    local list = lists[math.floor(rank / RANKS.source)]
    list[#list + 1], ranks[key] = key, rank
  end

  for i = 1, #stored, 2 do
    if not c.dirty[stored[i]] then
      put(stored[i], tonumber(stored[i + 1]))
    end
  end
  for key, w in pairs(c.dirty) do
    local rank = rank_of(c, w, p.now) or w.untold and 0
    if rank then
      put(key, rank)
    end
  end
  for source = 0, 5 do
    if #lists[source] > 1 then
      table.sort(lists[source], function(one, other)
        if ranks[one] ~= ranks[other] then
          return ranks[one] < ranks[other]
        end
        return one < other
      end)
    end
  end
  return lists
end
