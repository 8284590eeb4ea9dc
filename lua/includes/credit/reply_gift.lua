-- Gives the caller its part of what is ready, in the reply: all of it if no other receiver waits for messages. The
-- first message is given whatever its size. Returns the gift, or nil; whether nothing is ready for the
-- receiver after it, if that is known; and whether suspects were passed over.
-- @use choose_gift open_credit side_named
-- @use give ranked_keys rank_of words_of
local function reply_gift(p, w)
  local c, side = open_credit(p), side_named(w.source)
  local most, rivals = math.min(w.limit - w.messages, 1000 - c.given), 0
  if most <= 0 or w.serial - w.seen > 16 or w.serial >= 262140 then
    return nil
  end
  if c.open then
    local there = redis.call('ZCOUNT', p.order, side.from, side.to)
    if there == 0 then
      return nil, true
    end
    local keys = ranked_keys(p)[w.source == '' and 1 or w.source == 'd' and 2 or 3]
    words_of(p, keys)
    for i = 1, #keys do
      local other = c.words[keys[i]]
      rivals = rivals + (other and other ~= w and rank_of(c, other, p.now) and 1 or 0)
    end
    most = math.min(most, math.max(1, math.floor(there / (1 + rivals))))
  end
  local chosen, gift = choose_gift(p, w, side, most, math.max(1, math.min(w.most_bytes - w.bytes, 4194304 - c.spent)))
  if chosen.n == 0 then
    return nil, chosen.emptied, chosen.passed
  end
  give(p, w, side, chosen, 0)
  c.given, c.spent = c.given + chosen.n, c.spent + chosen.size
  return gift, chosen.emptied, chosen.passed
end
