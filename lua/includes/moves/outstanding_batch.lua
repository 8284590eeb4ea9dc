-- Returns the outstanding batch for a destination: its number, the incarnation of the destination, the names of its
-- messages as runs, and its purpose. All four are texts. Returns nil if no batch is outstanding.
local function outstanding_batch(p, destination)
  return string.match(redis.call('HGET', p.lasting, 'b:' .. destination) or '', '^(%d+) (%S+) (%S+) (.*)$')
end
