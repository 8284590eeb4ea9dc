-- Returns the number of the last pinned message of a reserved partition. Due work and purges leave the messages up to
-- this number alone. Returns 0 if the partition is not reserved.
local function pinned_up_to(p)
  local text = p.reserved and redis.call('HGET', p.state, 'pin')
  return text and tonumber(string.match(text, '^%d+ %d+ %d+ (%d+)') or 0) or 0
end
