-- Makes a message deferred: from then on it can be received by number only.
-- @use add_pair entry_text index_add
local function make_deferred(p, member, side, number, e)
  if e.session then
    index_add(p, e.session, 'p', number)
  end
  add_pair(p.placed, side.deferred + number, member)
  add_pair(p.entered, member, entry_text(e))
end
