-- Writes a lease: the token holds `count` messages or a session until the time `till`. `runs` names the messages or the
-- session.
-- @use note_lease_end number_text
local function write_lease(p, token, till, count, runs)
  local ends = number_text[till]
  redis.call('HSET', p.leases, token, ends .. ' ' .. number_text[count] .. ' ' .. runs)
  redis.call('ZADD', p.locks, ends, token)
  note_lease_end(p, till)
end
