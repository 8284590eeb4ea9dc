-- Puts a message where it can be received, at its own place, and adds it to the index of its session if it has one. The
-- caller has already removed the message from its former place. A copy always keeps its entry, because it may expire in
-- this subscription earlier than its record says. `indexed` says whether the expiry of the message becomes an event in
-- `due`.
-- @use add_pair band due_name entry_text index_add
local function make_ready(p, member, side, number, e, indexed)
  if e.session then
    index_add(p, e.session, 'a', number)
  end
  add_pair(p.placed, (side.prefix == '' and tonumber(e.level) * BAND or side.ready) + number, member)
  local plain = e.failures == 0 and e.changes == '' and e.record == '' and e.home == 'a'
  if plain and side.prefix == '' and not p.shared then
    p.forgotten[#p.forgotten + 1] = member
  else
    add_pair(p.entered, member, entry_text(e))
  end
  if indexed then
    add_pair(p.awaited, tonumber(e.expires), due_name('e', member))
  end
end
