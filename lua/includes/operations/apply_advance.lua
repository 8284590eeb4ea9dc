-- Gives a watermark the value that check_advance has checked, or removes it. Returns the number that is stored with the
-- value: that of the last message that the transaction has sent to the partition or, if it has sent none, the number
-- that was stored before.
local function apply_advance(p, plan)
  local number = p.last_sent or plan.number
  if plan.value == '' then
    redis.call('HDEL', p.lasting, 'w:' .. plan.name)
    redis.call('HSET', p.lasting, 'watermarks', string.format('%d', plan.count))
  else
    redis.call('HSET', p.lasting, 'w:' .. plan.name, string.format('%.0f ', number) .. plan.value, 'watermarks',
      string.format('%d', plan.count))
  end
  return number
end
