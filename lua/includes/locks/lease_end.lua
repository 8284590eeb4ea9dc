-- Returns the end of a lease by the logical clock; 0 if there is no such lease. `key` is a token, or a token and the
-- name of a message that has a lease of its own.
local function lease_end(p, key)
  return tonumber(string.match(redis.call('HGET', p.leases, key) or '0', '^%d+'))
end
