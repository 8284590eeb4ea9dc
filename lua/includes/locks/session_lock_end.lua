-- Returns the end of a token's lock on a session, by the logical clock, and the name of the session; nil if the token
-- does not hold the lock now. Without `session`, the session may be any.
local function session_lock_end(p, session, token)
  local till, held = string.match(redis.call('HGET', p.leases, token) or '', '^(%d+) %d+ @(.*)$')
  if held and (held == session or not session) and tonumber(till) > p.logical then
    return tonumber(till), held
  end
end
