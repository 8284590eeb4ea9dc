-- The session that an argument names, behind a sign: no session is the empty text, and the empty text is a session. Nil if it
-- names none, and a refusal if it cannot be one, or if the entity has none.
-- @use refuse
local function parse_session(p, text, needed)
  if text == '' and not needed then
    return nil
  end
  if not p.index then
    return nil, refuse('SESSIONS', 'none')
  end
  if string.byte(text) ~= 61 or #text > 513 or string.find(text, '\255', 1, true) then
    return nil, refuse('BADCALL', 'session')
  end
  return string.sub(text, 2)
end
