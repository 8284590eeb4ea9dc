-- Returns the session that an argument names, as parse_session does. The argument may also be `@`, for the session
-- whose lock the token holds.
-- @use parse_session refuse
-- @use session_lock_end inside
local function named_session(p, text, needed, token)
  if text == '@' and token then
    local till, held = session_lock_end(p, nil, token)
    if till then
      return held
    end
    return nil, refuse('LOST', 'session')
  end
  return parse_session(p, text, needed)
end
