-- Answers a repetition. It writes the time of the lane again, because a WAIT after a script that writes nothing would
-- confirm nothing.
local function answer_repetition(p, reply)
  redis.call('HSET', p.ops, p.lane, string.format('%s %.0f %s ', p.number, p.now, p.name) .. p.repeated)
  return reply
end
