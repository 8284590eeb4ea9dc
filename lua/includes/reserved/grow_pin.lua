-- Lets the pin grow towards the end of the plan. Events in `due` that would expire pinned messages are removed before
-- the messages are pinned, up to 1,000 in a call; if there are none, the whole range is pinned at once.
-- @use band due_name ready_messages sides
local function grow_pin(p, pin)
  -- Every event in `due` is about one message. Those that are not scheduled or delayed will expire.
  local side, others = SIDES[''], redis.call('ZCOUNT', p.order, SIDES[''].scheduled, SIDES[''].scheduled + BAND - 1)
  for _, prefix in ipairs({ '', 'd', 't' }) do
    side = SIDES[prefix]
    others = others + redis.call('ZCOUNT', p.order, side.delayed, side.delayed + BAND - 1)
  end
  if redis.call('ZCARD', p.due) == others then
    pin.last = pin.upto
    return
  end
  local names, last = ready_messages(p, pin.last, pin.upto, 1000)
  for i = 1, #names do
    p.unawaited[#p.unawaited + 1] = due_name('e', names[i])
  end
  pin.last = #names < 1000 and pin.upto or last
end
