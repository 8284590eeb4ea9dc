-- Tells the client that moves messages that some wait in this partition. The partition tells this once, and then not
-- again until `outgoing` has found nothing that waits.
-- @use band
-- @use sides inside
local function announce_moves(p)
  local waits = p.awaits_mover
  if p.forwards and not waits then
    waits = redis.call('ZCOUNT', p.order, SIDES[''].from, SIDES[''].to) > 0
  end
  if p.forwards_dead and not waits then
    waits = redis.call('ZCOUNT', p.order, SIDES.d.ready, SIDES.d.ready + BAND - 1) > 0
  end
  if waits then
    p.changed.calling, p.calling = '1', true
    local channel, text = redis.call('HGET', p.state, 'channel'), p.state .. ' move'
    redis.call('SPUBLISH', channel, text)
  end
end
