-- Makes a message deferred: from then on it can be received by number only.
-- @use entry_text index_add
local function make_deferred(p, member, side, number, e)
  if e.session then
    index_add(p, e.session, 'p', number)
  end
  p.placed[#p.placed + 1] = side.deferred + number
  p.placed[#p.placed + 1] = member
  p.entered[#p.entered + 1] = member
  p.entered[#p.entered + 1] = entry_text(e)
end
