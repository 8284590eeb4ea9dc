-- Gives the caller its part of what is ready, in the reply: all of it if no other receiver waits for messages. The
-- first message is given whatever its size, unless the call has given 2 MB already. Returns the gifts: one of messages,
-- or one for each session; whether nothing is ready for the receiver after them, if that is known; and whether suspects
-- were passed over.
-- @use choose_gift flush open_credit side_named
-- @use ready_count give open_grants place_of
local function reply_gift(p, w)
  local c, side, gifts = open_credit(p), side_named[w.source] or side_named[''], {}
  local most, rivals = math.min(w.limit - w.messages, 1000 - c.given), 0

  local function may_get()
    return most > 0 and c.left > 0 and w.limit > w.messages and w.serial - w.seen <= 16 and w.serial < 262140
  end

  if not may_get() then
    return gifts
  end
  if c.open or w.session then
    local there = ready_count(p, w)
    if there == 0 then
      return gifts, true
    end
    if not w.session and there > 1 and most > 1 then
      local next_grant = open_grants(p, place_of[w.source])
      local other = next_grant(33)
      while other and rivals < 32 do
        rivals, other = rivals + (other ~= w and 1 or 0), next_grant(1)
      end
    end
    most = math.min(most, math.max(1, math.floor(there / (1 + rivals))))
  end
  while w.source == 'next' and may_get() do
    local chosen, gift = choose_gift(p, w, side, 1, math.max(1, math.min(w.first_bytes, c.left)))
    if chosen.n == 0 then
      flush(p)
      return gifts, true
    end
    give(p, w, side, chosen, 0, true)
    gifts[#gifts + 1], most = gift, most - 1
    c.given, c.left = c.given + 1 + (chosen.some and chosen.some.n or 0), c.left - chosen.size
  end
  if w.source == 'next' then
    flush(p)
    return gifts
  end
  local chosen, gift = choose_gift(p, w, side, most, math.max(1, math.min(w.most_bytes - w.bytes, c.left)))
  if chosen.n == 0 then
    return gifts, chosen.emptied, chosen.passed
  end
  give(p, w, side, chosen, 0)
  c.given, c.left = c.given + chosen.n, c.left - chosen.size
  return { gift }, chosen.emptied, chosen.passed
end
