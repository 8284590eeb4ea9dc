-- Makes a moved message of a pass ready at the time `at`, unless it expires by then.
-- @use await_expiry never note_expired supply_turn
local function note_ready(p, o, m, at)
  local expires = tonumber(m.e.expires)
  if expires <= at then
    note_expired(p, o, m, at)
    return
  end
  m.is, m.indexed = 'ready', expires < NEVER
  supply_turn(p, o, m, 1, at)
  if expires <= p.now then
    await_expiry(o, m, expires)
  end
end
