-- Returns the keys of the open grants of a source, in the order of their stored ranks, with their ranks by key. It has
-- the first `number` of them at least, if there are so many. `all` says that there are no more, or that the call reads
-- no more: it reads up to 128. The first 32 of all sources are read at once, and more of a source only if they are
-- wanted. Source 0 has the receivers that were not told of an end, 1 to 3 the sides, 4 free sessions, and 5 all held
-- sessions. `gone` is the number of keys that the call has removed since it began to read.
-- @use open_credit ranks
local function ranked_keys(p, source, number)
  local c = open_credit(p)
  if not c.ranked then
    local first = redis.call('ZRANGE', p.grants, '0', '31', 'WITHSCORES')
    c.ranked, c.count = {}, #first < 64 and #first / 2 or nil
    c.none = { ranks = {}, gone = 0, all = true }
    for i = 1, c.count and #first or 0, 2 do
      local rank = first[i + 1] + 0
      local of = math.min(5, math.floor(rank / RANKS.source))
      local list = c.ranked[of] or { ranks = {}, gone = 0, all = true }
      c.ranked[of], list[#list + 1], list.ranks[first[i]] = list, first[i], rank
    end
  end
  local list = c.ranked[source] or c.count and c.none
  if not list then
    list = { ranks = {}, gone = 0 }
    c.ranked[source] = list
  end
  while not list.all and #list < number do
    local low, before = source * RANKS.source, #list
    local high = source < 5 and low + RANKS.source - 1 or '+inf'
    local some = redis.call('ZRANGE', p.grants, low, high, 'BYSCORE', 'LIMIT', #list - list.gone, 32, 'WITHSCORES')
    for i = 1, #some, 2 do
      if not list.ranks[some[i]] then
        list[#list + 1], list.ranks[some[i]] = some[i], some[i + 1] + 0
      end
    end
    list.cut = #list >= 128
    list.all = list.cut or #some < 64 or #list == before -- a page without a new key would be read for ever
  end
  return list
end
