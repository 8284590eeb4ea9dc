-- Puts a message among the deferred ones, where only its number brings it out again.
-- @use entry_text index_add
local function make_deferred(p, member, side, number, e)
  if e.session then
    index_add(p, e.session, 'p', number)
  end
  p.placed[#p.placed + 1] = side.deferred + number
  p.placed[#p.placed + 1] = member
  p.entered[#p.entered + 1] = member
  p.entered[#p.entered + 1] = entry_text('            ', e)
end
