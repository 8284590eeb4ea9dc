-- Answers a repetition. It writes the time of the lane again, so that a WAIT after this script has a write that
-- replicas can confirm.
local function answer_repetition(p, reply)
  redis.call('HSET', p.ops, p.lane, string.format('%s %.0f %s ', p.number, p.now, p.name) .. p.repeated)
  return reply
end
