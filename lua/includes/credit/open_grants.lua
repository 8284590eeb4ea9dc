-- Returns a function that returns the open grants of a source one after the other, in the order of their ranks, and
-- nil at the end; and the number of keys that are known to it, or math.huge if there may be more. The function is told
-- how many of the grants may be wanted, and reads the words of as many at once. It passes over grants that have ended,
-- and receivers that do not answer: they leave the ranks at the end of the call.
-- @use comes_before open_credit place_of ranked_keys rank_of words_of
local function open_grants(p, source)
  local c, changed, at, stored, i, number = open_credit(p), {}, 1, ranked_keys(p, source, 1), 1, 0
  for _, w in pairs(c.dirty) do
    if place_of[w.source] == source and rank_of(c, w, p.now) then
      changed[#changed + 1] = w
    end
  end
  if #changed == 0 and #stored == 0 then
    return function() end, 0
  elseif #changed > 1 then
    table.sort(changed, function(one, other)
      return comes_before(rank_of(c, one, p.now), one.key, rank_of(c, other, p.now), other.key)
    end)
  end
  for of = 1, stored.all and #stored or 0 do
    number = number + (c.dirty[stored[of]] and 0 or 1)
  end

  return function(wanted)
    while true do
      if not stored.all then
        ranked_keys(p, source, i)
      end
      local key, w = stored[i], changed[at]
      if w and (not key or comes_before(rank_of(c, w, p.now), w.key, stored.ranks[key], key)) then
        at = at + 1
        return w
      elseif not key then
        return nil
      end
      i = i + 1
      if not c.dirty[key] then
        if c.words[key] == nil then
          words_of(p, { unpack(stored, i - 1, math.min(#stored, i - 2 + wanted)) })
        end
        w = c.words[key]
        if not w then
          stored.gone = stored.gone + redis.call('ZREM', p.grants, key)
        elseif rank_of(c, w, p.now) then
          return w
        end
      end
    end
  end, stored.all and number + #changed or math.huge
end
