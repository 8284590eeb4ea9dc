-- Returns the session that an argument names. The argument is the name with `=` in front, because an empty argument
-- means no session, but the empty text is also a valid name. Returns nil for no session, and a refusal if the name is
-- not valid or the entity has no sessions.
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
