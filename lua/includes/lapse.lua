-- Releases what the locks that have ended still hold, at most `share` messages. A long one may be worked off in several calls.
-- @use lapse_lease
-- @use lapse_session
local function lapse(p, share)
  local ended = redis.call('ZRANGE', p.locks, '-inf', p.logical, 'BYSCORE', 'LIMIT', 0, share)
  for i = 1, #ended do
    if share <= 0 then
      break
    end
    local token = ended[i]
    local till, left, runs = string.match(redis.call('HGET', p.leases, token), '^(%d+) (%d+) (.*)$')
    if string.byte(runs) == 64 then -- @: on a session
      share = lapse_session(p, string.sub(runs, 2), token, share)
    else
      share = lapse_lease(p, token, till, left, runs, share)
    end
  end
  return share
end
