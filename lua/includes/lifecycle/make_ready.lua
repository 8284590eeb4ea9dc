-- Puts a message where it can be received, at its own place, and adds it to the index of its session if it has one. The
-- caller has already removed the message from its former place. A copy always keeps its entry, because it may expire in
-- this subscription earlier than its record says. `indexed` says whether the expiry of the message becomes an event in
-- `due`.
-- @use band due_name entry_text index_add
local function make_ready(p, member, side, number, e, indexed)
  if e.session then
    index_add(p, e.session, 'a', number)
  end
  p.placed[#p.placed + 1] = (side.prefix == '' and tonumber(e.level) * BAND or side.ready) + number
  p.placed[#p.placed + 1] = member
  local plain = e.failures == 0 and e.changes == '' and e.record == '' and e.home == 'a'
  if plain and side.prefix == '' and not p.shared then
    p.forgotten[#p.forgotten + 1] = member
  else
    p.entered[#p.entered + 1] = member
    p.entered[#p.entered + 1] = entry_text(e)
  end
  if indexed then
    p.awaited[#p.awaited + 1] = tonumber(e.expires)
    p.awaited[#p.awaited + 1] = due_name('e', member)
  end
end
