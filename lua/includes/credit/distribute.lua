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
-- @use open_credit
-- @use choose_gift give push_to ranked_keys rank_of ready_for side_named words_of
-- @use read_many ready_count turns write_many
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

  -- Push messages or a session to a receiver. Returns how many, or 0 if it can get only interest, or nil if nobody
  -- listens; whether nothing is ready after that, if this is known; and whether only suspects are, which the receiver
  -- does not take.
  local function push_gift(w, side, most)
    local size = 0
    for i = 1, #w.unseen do
      size = size + w.unseen[i].pushed
    end
    local room = math.min(c.room, 65536 - size, side and w.most_bytes - w.bytes or 65536)
    if most <= 0 or room <= 0 or w.announced or w.delete or w.serial - w.seen >= 16 or w.serial >= 262140
      or not p.locks or p.run == '?' or p.more ~= 0 then
      return 0
    end
    local chosen, gift = choose_gift(p, w, side or side_named(''), most, side and room or math.min(room, w.first_bytes), true)
    if chosen.passed and chosen.emptied then
      chosen.emptied, chosen.dry = false, true
    end
    if chosen.n == 0 then
      return 0, chosen.emptied, chosen.dry
    elseif not push_to(p, w, gift) then
      for i = chosen.last, chosen.first, -1 do
        table.remove(p.unawaited, i)
      end
      return nil, nil, chosen.dry
    end
    give(p, w, side or side_named(''), chosen, chosen.size)
    c.pushes, c.room = c.pushes - 1, c.room - chosen.size
    return chosen.n, chosen.emptied, chosen.dry
  end

  -- Serve the receivers of a source.
  local function serve(prefix, keys)
    local side, count = side_named(prefix), #keys

    local function ready()
      return ready_count(p, { source = prefix })
    end

    local left = (count > 1 or c.rest) and ready() or nil
    local able, aside, served, loaded, dry = {}, {}, {}, 0, false -- dry: nothing but suspects is left

    -- Read some more of the words.
    local function load(some)
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
      local best, rivals = nil, count - loaded
      for i = 1, #able do
        local w = able[i]
        local rank = not aside[w] and (w.suspects or not dry) and rank_of(c, w, p.now)
        if rank then
          rivals = rivals + (served[w] and 0 or 1)
          if not best or rank < best.rank then
            best = { w = w, rank = rank }
          end
        end
      end
      return best and best.w, rivals
    end

    -- If a message has just become a suspect, and only receivers are there that do not take it, tell the first of them.
    -- If nothing but suspects is left, leave these receivers out.
    local function leave_suspects()
      local takers, best = {}, nil
      for i = 1, #able do
        local w = able[i]
        if w.suspects then
          takers[#takers + 1] = w
        end
      end
      if #takers == #able then
        return
      end
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

    local emptied = left == 0
    while not emptied and left ~= 0 and c.pushes > 0 do
      local w, rivals = first()
      if not w and loaded < count then
        load(left == 1 and 1 or 32)
      elseif not w then
        break
      else
        local most = math.min(w.limit - w.messages, 16, left and math.max(1, math.floor(left / math.max(1, rivals))) or 16)
        local given, none, only_suspects = push_gift(w, side, most)
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
      leave_suspects()
    end
    left = (emptied or caller or #able == 0) and 0 or left or ready()
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

  -- Serve the holders of the sessions in which messages may have become ready.
  local function serve_held()
    local sessions, tokens, keys, able, side = {}, {}, {}, {}, side_named('')
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
      if w and w ~= caller and rank_of(c, w, p.now) then
        able[#able + 1] = { w = w, left = ready_count(p, w) }
      end
    end

    -- Return the first holder by rank that may get a push.
    local function first()
      local best, lowest = nil, nil
      for i = 1, #able do
        local one = able[i]
        local rank = one.left > 0 and not one.aside and rank_of(c, one.w, p.now)
        if rank and (not best or rank < lowest or rank == lowest and one.w.key < best.w.key) then
          best, lowest = one, rank
        end
      end
      return best
    end

    local one = first()
    while one and c.pushes > 0 do
      local given, none = push_gift(one.w, side, math.min(one.w.limit - one.w.messages, 16, one.left))
      one.aside, one.left = given == 0, none and 0 or one.left - (given or 0)
      one = first()
    end
    local told, later = 0, {}
    for i = 1, caller and 0 or #able do
      local w = able[i].w
      if able[i].left > 0 and w.told == 0 and rank_of(c, w, p.now) then
        if told < 64 then
          told = told + 1
          push_to(p, w)
        else
          later[#later + 1], later[#later + 2], rest = TURNS.locked + 1, 's' .. w.session, true
        end
      end
    end
    if #later > 0 then
      write_many('ZADD', p.turns, later)
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
    serve_held()
  end
  if not caller then
    p.roused, c.rest = nil, rest
  end
end
