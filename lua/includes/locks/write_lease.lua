-- Writes a lease: the token holds `count` messages or a session until the time `till`. `runs` names the messages or the
-- session. (A session's name may be any bytes, and `string.format` would cut a %s argument at a zero byte.)
-- @use note_lease_end
local function write_lease(p, token, till, count, runs)
  redis.call('HSET', p.leases, token, string.format('%.0f %d ', till, count) .. runs)
  redis.call('ZADD', p.locks, till, token)
  note_lease_end(p, till)
end
