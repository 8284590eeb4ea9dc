-- Pushes up to `most` messages of a side, or a session, to a receiver. Returns how many, or 0 if the receiver can get
-- only interest, or nil if nobody listens; whether nothing is ready after that, if this is known; and whether only
-- suspects are, which the receiver does not take. Messages whose records are lost are set aside even if nothing is
-- pushed, because the next receiver must not find them again.
-- @use choose_gift flush give open_credit push_to side_named
local function push_gift(p, w, side, most)
  local c, size = open_credit(p), 0
  for i = 1, #w.unseen do
    size = size + w.unseen[i].pushed
  end
  local room = math.min(c.room, 65536 - size, side and w.most_bytes - w.bytes or 65536)
  if most <= 0 or room <= 0 or w.announced or w.delete or w.serial - w.seen >= 16 or w.serial >= 262140
    or not p.locks or p.run == '?' or p.more ~= 0 then
    return 0
  end
  local chosen, gift = choose_gift(p, w, side or side_named[''], most, side and room or math.min(room, w.first_bytes), true)
  if chosen.passed and chosen.emptied then
    chosen.emptied, chosen.dry = false, true
  end
  if chosen.n == 0 then
    flush(p)
    return 0, chosen.emptied, chosen.dry
  elseif not push_to(p, w, gift) then
    for i = chosen.last, chosen.first, -1 do
      table.remove(p.unawaited, i)
    end
    flush(p)
    return nil
  end
  give(p, w, side or side_named[''], chosen, chosen.size)
  c.pushes, c.room = c.pushes - 1, c.room - chosen.size
  return chosen.n, chosen.emptied, chosen.dry
end
