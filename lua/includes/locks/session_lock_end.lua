-- Returns the end of a token's lock on a session, by the logical clock; nil if the token does not hold the lock now.
local function session_lock_end(p, session, token)
  local till, held = string.match(redis.call('HGET', p.leases, token) or '', '^(%d+) %d+ @(.*)$')
  return held == session and tonumber(till) > p.logical and tonumber(till) or nil
end
