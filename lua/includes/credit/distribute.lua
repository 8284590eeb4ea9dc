-- Gives ready messages, and free sessions, to open grants in pushes, and announces interest in what is left. A call
-- makes at most 16 pushes of 64 KB together. With `caller`, only the other receivers get gifts, and no interest is
-- announced: the reply to the caller comes next.
--
-- A receiver gets its portion: what is ready divided by the number of receivers that want it. A call knows the first
-- 32 receivers of each source; one that does not answer makes room for the next. What stays ready is announced to one
-- receiver for each portion. Interest that is not answered in a second is passed on. If a message has become a suspect,
-- and no receiver with open credit takes suspects, one of them is told. Sessions are given one at a time, and their
-- receivers take suspects.
--
-- The messages of a held session have one receiver. So only the sessions in `p.roused` are looked at, and up to 64 of
-- their holders get interest. The others have a score of their own in the key `turns`, and the next calls look at them.
-- @use comes_before open_credit open_grants push_gift push_to ranked_keys rank_of ready_count ready_for serve_held
-- @use side_named turns words_of
local function distribute(p, caller)
  local c = open_credit(p)

  local rest = false
  if c.untold then
    local told, i, keys = 0, 1, ranked_keys(p, 0, 1)
    while keys[i] and told < 16 do
      words_of(p, c.words[keys[i]] == nil and { unpack(keys, i, math.min(#keys, i + 15)) } or {})
      local w = c.words[keys[i]]
      if w and w.untold and not w.passed and not w.late then -- the others learn it by the call that they owe
        told = told + 1
        push_to(p, w)
      end
      if w then
        w.untold, w.ranked, c.dirty[w.key] = false, w.ranked or 0, w
      else
        keys.gone = keys.gone + redis.call('ZREM', p.grants, keys[i])
      end
      i = i + 1
      ranked_keys(p, 0, i)
    end
    c.untold = keys[i] ~= nil or keys.cut == true -- nil would be the stored value
  end

  -- Serve the receivers of a source.
  local function serve(source, prefix)
    local next_grant, count = open_grants(p, source)
    if count == 0 then
      return
    end
    local side, left = side_named[prefix], (count > 1 or c.rest) and ready_count(p, { source = prefix }) or nil
    local able, aside, served, dry = {}, {}, {}, false -- dry: nothing but suspects is left
    local known = left == 1 and 1 or 32

    -- Let `known` receivers be known, without those that have no open grant any more. Return the first one by rank that
    -- may get a push, and the number of receivers that have not got any yet.
    local function first()
      local best, lowest, rivals, i = nil, nil, 0, 1
      while i <= known do
        local w = able[i] or next_grant(known - #able)
        local rank = w and rank_of(c, w, p.now)
        able[i] = w
        if not w then
          break
        elseif not rank or w == caller then
          table.remove(able, i)
        else
          i = i + 1
          if not aside[w] and (w.suspects or not dry) then
            rivals = rivals + (served[w] and 0 or 1)
            if not best or rank < lowest then
              best, lowest = w, rank
            end
          end
        end
      end
      return best, rivals
    end

    local emptied = left == 0
    while not emptied and left ~= 0 and c.pushes > 0 do
      local w, rivals = first()
      if w then
        local most = left and math.max(1, math.floor(left / math.max(1, rivals))) or 16
        local given, none, only_suspects = push_gift(p, w, side, math.min(w.limit - w.messages, 16, most))
        dry = dry or only_suspects
        if given == 0 then
          aside[w], emptied = true, none
        elseif given then
          served[w], left, emptied = true, left and left - given, none
        end
      elseif known == 32 then
        break
      else
        known = 32
      end
    end

    -- Announce what is left, to one receiver for each portion. Return whether a receiver did not listen: then others
    -- are there. If a message has just become a suspect, and only receivers are there that do not take it, tell the
    -- first of them. If nothing but suspects is left, leave these receivers out.
    local function announce()
      local takers, there, suspect, deaf = {}, true, false, false
      first()
      rest = rest or ranked_keys(p, source, 1).cut
      table.sort(able, function(one, other)
        local credits, others = one.limit > one.messages, other.limit > other.messages
        if credits ~= others then
          return credits
        elseif (one.told > 0) ~= (other.told > 0) then
          return one.told > 0
        end
        return comes_before(rank_of(c, one, p.now), one.key, rank_of(c, other, p.now), other.key)
      end)
      for i = 1, #able do
        takers[#takers + 1] = able[i].suspects and able[i] or nil
      end
      if #takers < #able then
        there, suspect = ready_for(p, { suspects = false }, side)
      end
      if suspect and p.suspected and #takers == 0 then
        for i = 1, #able do
          if able[i].told > 0 or push_to(p, able[i]) then
            break
          end
          deaf = true
        end
      end
      local some = deaf and {} or there and able or takers
      local waiting = #some > 0 and (left or ready_count(p, { source = prefix })) or 0
      rest = rest or waiting > 0
      for i = 1, math.min(#some, 16) do
        local w = some[i]
        if waiting <= 0 then
          break
        elseif w.told > 0 or push_to(p, w) then
          waiting = waiting - math.max(1, math.min(w.limit - w.messages, 16, math.floor(waiting / #some)))
        else
          deaf = true
        end
      end
      return deaf
    end

    known = 32
    while not emptied and left ~= 0 and not caller and announce() do
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
    serve(source, prefix)
  end
  if p.roused then
    rest = serve_held(p, caller) or rest
  end
  if not caller then
    p.roused, c.rest = nil, rest
  end
end
