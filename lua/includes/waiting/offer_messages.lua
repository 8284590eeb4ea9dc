-- Offers messages to the first receiver that waits on the main side, if the receiver has asked for offers: locks them
-- under the token that the receiver has named, and publishes them in the wake. A receiver that gets an offer is no
-- longer a waiter. The lock ends after one second, unless the next call of the receiver takes the offer
-- (see take_offer). An offer has at most 16 messages of 16 KB together. The lease of an offer begins with a plus, and
-- its score in `locks` is above NEVER. So no other script takes it for a lock whose end is near.
--
-- The wake is a plus and a list of texts, each with its length and a colon in front: token, fence, logical clock, lock
-- duration, the number of messages, their names, their records, and what delivery_extras adds for some of them.
--
-- Returns the number of the messages. If no client of this server listens to the channel, nothing is locked, and the
-- receiver is no longer a waiter; the number is then 0. Nothing is published then either: in a cluster, a client that
-- still listens to a replica would hear it. Returns nil if there is no offer, and the receiver must be woken without
-- one; so it is if the user of the call has no right to count who listens.
-- @use choose_messages flush lock_messages never number_runs inside
-- @use write_settlements inside
local function offer_messages(p, side, member, wanted)
  local asked = redis.call('HGET', p.states, 'a' .. member)
  if not asked or p.forwards or p.status == 'ReceiveDisabled' or p.status == 'Disabled' then
    return nil
  end
  local token, most = string.match(asked, '^(%S+) (%d+)$')
  if redis.call('HEXISTS', p.leases, token) == 1 then
    return nil
  end
  local channel = string.sub(member, 1, -2)
  local listening = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)
  if listening.err then
    return nil
  end
  if listening[2] == 0 then
    redis.call('ZREM', p.waiters, member)
    redis.call('HDEL', p.states, 'a' .. member)
    p.left = true
    return 0
  end
  local chosen = choose_messages(p, side, token, math.min(wanted, most, 16), 16384, 0)
  if chosen.n == 0 then
    p.unawaited = {}
    return nil
  end

  local texts = { token, string.format('%.0f', p.granted + 1), string.format('%.0f', p.logical), p.lock, chosen.n }
  for _, list in ipairs({ chosen.names, chosen.records, chosen.extras }) do
    for i = 1, #list do
      texts[#texts + 1] = list[i]
    end
  end
  for i = 1, #texts do
    texts[i] = #tostring(texts[i]) .. ':' .. texts[i]
  end
  redis.call('SPUBLISH', channel, '+' .. table.concat(texts))
  redis.call('ZREM', p.waiters, member)
  redis.call('HDEL', p.states, 'a' .. member)
  local till = p.logical + 1000
  lock_messages(p, chosen, side.locked)
  redis.call('HSET', p.leases, token, string.format('%.0f %d +', till, chosen.n) .. number_runs('', chosen.numbers))
  redis.call('ZADD', p.locks, NEVER + till, token)
  p.granted, p.offered = p.granted + 1, math.min(p.offered, till)
  redis.call('HSET', p.state, 'granted', p.granted, 'offered', p.offered)
  if p.noted then
    p.given = { letter = 'g', names = chosen.names, records = chosen.records }
    write_settlements(p)
  end
  flush(p)
  return chosen.n
end
