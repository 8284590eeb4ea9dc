-- Whether a token holds the lock on a session now: until when, by the logical clock, or nil.
local function session_lock_end(p, session, token)
  local till, held = string.match(redis.call('HGET', p.leases, token) or '', '^(%d+) %d+ @(.*)$')
  return held == session and tonumber(till) > p.logical and tonumber(till) or nil
end
