-- Puts a message back where it can be received, at its own place, or lets it expire if it is late for that. Where it belongs
-- to a session, this seats it there; the caller has taken it from where it stood. The entry of a copy stays, since it may say that
-- it lives shorter here than its record does.
-- @use band
-- @use entry_text
-- @use expire
-- @use seat
local function make_ready(p, member, side, number, e)
  local expires = tonumber(e.expires)
  if expires <= p.now then
    expire(p, member, e)
    return
  end
  if e.session then
    seat(p, e.session, 'a', number)
    p.touched[e.session] = 'ready'
  end
  p.placed[#p.placed + 1] = (side.prefix == '' and tonumber(e.level) * BAND or side.ready) + number
  p.placed[#p.placed + 1] = member
  if side.prefix == '' and not p.shared and e.failures == 0 and e.changes == '' and e.record == '' then
    p.forgotten[#p.forgotten + 1] = member
  else
    p.entered[#p.entered + 1] = member
    p.entered[#p.entered + 1] = entry_text('            ', e)
  end
  if e.expires ~= '9999999999999' then
    p.awaited[#p.awaited + 1] = expires
    p.awaited[#p.awaited + 1] = 'e' .. member
  end
end
