-- Puts a message back where it can be received, at its own place, or lets it expire if it is late for that.
-- @use band
-- @use entry_text
-- @use expire
local function make_ready(p, member, side, number, e)
  local expires = tonumber(e.expires)
  if expires <= p.now then
    expire(p, member, e)
    return
  end
  p.placed[#p.placed + 1] = (side.prefix == '' and tonumber(e.level) * BAND or side.ready) + number
  p.placed[#p.placed + 1] = member
  if side.prefix == '' and e.failures == 0 and e.changes == '' and e.record == '' then
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
