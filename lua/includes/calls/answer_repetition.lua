-- Answers a repetition. The time of the lane is written again: a WAIT behind a script that writes nothing would promise
-- nothing.
local function answer_repetition(p, reply)
  redis.call('HSET', p.ops, p.lane, string.format('%s %.0f %s ', p.number, p.now, p.name) .. p.repeated)
  return reply
end
