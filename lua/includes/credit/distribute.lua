-- Gives ready messages, and free sessions, to open grants in pushes, and announces interest in what is left. A call
-- makes at most 16 pushes of 64 KB together. With `caller`, only the other receivers get gifts, and no interest is
-- announced: the reply to the caller comes next.
--
-- A receiver gets its portion: what is ready divided by the number of receivers that want it. What stays ready is
-- announced to one receiver for each portion. Interest that is not answered in a second is passed on. If a message has
-- become a suspect, and no receiver with open credit takes suspects, one of them is told. Sessions are given one at a
-- time, and their receivers take suspects.
--
-- The messages of a held session have one receiver. So only the sessions in `p.roused` are looked at, and up to 64 of
-- their holders get interest. The others have a score of their own in the key `turns`, and the next calls look at them.
-- @use open_credit push_gift push_to ranked_keys rank_of ready_count ready_for serve_held side_named turns words_of
local function distribute(p, caller)
  local c = open_credit(p)

  local lists, rest = ranked_keys(p), false
  if c.untold then
    local keys = lists[0]
    local some = { unpack(keys, 1, 16) }
    words_of(p, some)
    for i = 1, #some do
      local w = c.words[some[i]]
      if w then
        if not w.passed and not w.late then -- the others learn it by the call that they owe
          push_to(p, w)
        end
        w.untold, w.ranked, c.dirty[w.key] = false, w.ranked or 0, w
      else
        redis.call('ZREM', p.grants, some[i])
      end
    end
    c.untold = #keys > 16
  end

  -- Serve the receivers of a source.
  local function serve(prefix, keys)
    local side, count = side_named[prefix], #keys

    local left = (count > 1 or c.rest) and ready_count(p, { source = prefix }) or nil
    local able, aside, served, loaded, dry = {}, {}, {}, 0, false -- dry: nothing but suspects is left

    -- Read some more of the words.
    local function load(some)
      if loaded == count then
        return
      end
      local till = math.min(count, loaded + some)
      words_of(p, { unpack(keys, loaded + 1, till) })
      for i = loaded + 1, till do
        local w = c.words[keys[i]]
        if w and w ~= caller and rank_of(c, w, p.now) then
          able[#able + 1] = w
        elseif not w then
          redis.call('ZREM', p.grants, keys[i])
        end
      end
      loaded = till
    end

    -- Return the first receiver by rank that may get a push, and the number of receivers that have not got any yet.
    local function first()
      local best, lowest, rivals = nil, nil, count - loaded
      for i = 1, #able do
        local w = able[i]
        local rank = not aside[w] and (w.suspects or not dry) and rank_of(c, w, p.now)
        if rank then
          rivals = rivals + (served[w] and 0 or 1)
          if not best or rank < lowest then
            best, lowest = w, rank
          end
        end
      end
      return best, rivals
    end

    local emptied = left == 0
    while not emptied and left ~= 0 and c.pushes > 0 do
      local w, rivals = first()
      if not w and loaded < count then
        load(left == 1 and 1 or 32)
      elseif not w then
        break
      else
        local most = math.min(w.limit - w.messages, 16, left and math.max(1, math.floor(left / math.max(1, rivals))) or 16)
        local given, none, only_suspects = push_gift(p, w, side, most)
        dry = dry or only_suspects
        if given == 0 then
          aside[w], emptied = true, none
        elseif given then
          served[w], left, emptied = true, left and left - given, none
        end
      end
    end

    if not emptied and left ~= 0 and not caller then
      load(32)
      for i = #able, 1, -1 do
        if not rank_of(c, able[i], p.now) then
          table.remove(able, i)
        end
      end

      -- If a message has just become a suspect, and only receivers are there that do not take it, tell the first of
      -- them. If nothing but suspects is left, leave these receivers out.
      local takers, best = {}, nil
      for i = 1, #able do
        local w = able[i]
        if w.suspects then
          takers[#takers + 1] = w
        end
      end
      if #takers < #able then
        local there, suspect = ready_for(p, { suspects = false }, side)
        while suspect and p.suspected and #takers == 0 and not best and #able > 0 do
          local at = 1
          for i = 2, #able do
            local one, other = able[i], able[at]
            local told, before = one.told > 0, other.told > 0
            local rank, below = rank_of(c, one, p.now), rank_of(c, other, p.now)
            if told and not before or told == before and (rank < below or rank == below and one.key < other.key) then
              at = i
            end
          end
          best = (able[at].told > 0 or push_to(p, able[at])) and able[at]
          if not best then
            table.remove(able, at)
          end
        end
        able = there and able or takers
      end
    end
    left = (emptied or caller or #able == 0) and 0 or left or ready_count(p, { source = prefix })
    if left > 0 then
      rest = true
      table.sort(able, function(one, other)
        local credits, others = one.limit > one.messages, other.limit > other.messages
        if credits ~= others then
          return credits
        elseif (one.told > 0) ~= (other.told > 0) then
          return one.told > 0
        end
        local rank, below = rank_of(c, one, p.now), rank_of(c, other, p.now)
        return rank < below or rank == below and one.key < other.key
      end)
      local rivals = #able
      for i = 1, math.min(rivals, 16) do
        local w = able[i]
        if left <= 0 then
          break
        end
        if w.told > 0 or push_to(p, w) then
          left = left - math.max(1, math.min(w.limit - w.messages, 16, math.floor(left / rivals)))
        end
      end
    end
  end

  if p.index and c.rest then
    local some, placed = redis.call('ZRANGE', p.turns, TURNS.locked + 1, TURNS.locked + 1, 'BYSCORE', 'LIMIT', 0, 64), {}
    for i = 1, #some do
      p.roused = p.roused or {}
      p.roused[string.sub(some[i], 2)] = true
      placed[2 * i - 1], placed[2 * i] = TURNS.locked, some[i]
    end
    if #some > 0 then
      redis.call('ZADD', p.turns, unpack(placed))
    end
  end
  for source, prefix in ipairs({ '', 'd', 't', 'next' }) do
    if #lists[source] > 0 then
      serve(prefix, lists[source])
    end
  end
  if p.roused then
    rest = serve_held(p, caller) or rest
  end
  if not caller then
    p.roused, c.rest = nil, rest
  end
end
