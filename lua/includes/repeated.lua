-- Answers a repetition. The time of the lane is written again: a WAIT behind a script that writes nothing would promise
-- nothing.
local function repeated(p, reply)
  redis.call('HSET', p.ops, p.lane, p.number .. ' ' .. string.format('%.0f', p.now) .. ' ' .. p.repeated)
  return reply
end
