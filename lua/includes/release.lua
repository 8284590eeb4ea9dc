-- Ends the lock of a message that was not settled for good: it goes to where the delivery limit, its home, its expiry and the
-- wished delay send it, in this order. With `counted` this was a delivery that failed; the count of a dead letter stays as it was.
-- A message of a session names it in its entry, and was held.
-- @use block inside
-- @use bury
-- @use entry_text
-- @use make_ready
-- @use seat
-- @use side_of
-- @use unseat
local function release(p, member, e, counted, delay)
  local side, number = side_of(member)
  if e.session then
    unseat(p, e.session, 'h', number)
  end
  if counted and side.prefix == '' then
    e.failures = e.failures + 1
    if e.failures >= p.deliveries then
      bury(p, member, e, 'M')
      return
    end
  end
  if e.home == 'f' then
    if e.session then
      seat(p, e.session, 'p', number)
    end
    p.placed[#p.placed + 1] = side.deferred + number
    p.placed[#p.placed + 1] = member
    p.entered[#p.entered + 1] = member
    p.entered[#p.entered + 1] = entry_text('            ', e)
  elseif delay > 0 and e.session and tonumber(e.expires) > p.now then
    -- What comes after it in its session waits for it.
    block(p, e.session, math.min(p.now + delay, tonumber(e.expires)))
    make_ready(p, member, side, number, e)
  elseif delay > 0 and tonumber(e.expires) > p.now then
    -- Not longer than it lives: it expires when it comes back.
    p.placed[#p.placed + 1] = side.delayed + number
    p.placed[#p.placed + 1] = member
    p.entered[#p.entered + 1] = member
    p.entered[#p.entered + 1] = entry_text('            ', e)
    p.awaited[#p.awaited + 1] = math.min(p.now + delay, tonumber(e.expires))
    p.awaited[#p.awaited + 1] = 'w' .. member
  else
    make_ready(p, member, side, number, e)
  end
end
