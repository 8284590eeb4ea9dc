-- Ends the lock on a session that has no held messages left. The word of its holder as a receiver of its messages is
-- forgotten. If the holder has open credit it is told, but a call tells only 16
-- of them: a holder knows itself when its lock ends. The calling code decides what the session does next.
-- @use open_credit push_to rank_of words_of
local function unlock_session(p, session, token)
  redis.call('HDEL', p.leases, token)
  redis.call('ZREM', p.locks, token)
  redis.call('HDEL', p.states, '!' .. session)

  local c, key, w = nil, token .. ' =' .. session, nil
  if p.credit ~= '' or p.credits then
    c = open_credit(p)
    words_of(p, { key })
    w = c.words[key]
  end
  if not w then
    return
  end
  if rank_of(c, w, p.now) and c.ended < 16 then
    c.ended = c.ended + 1
    push_to(p, w)
  end
  redis.call('HDEL', p.words, key)
  if w.ranked then
    redis.call('ZREM', p.grants, key)
    c.count = c.count and c.count - 1
  end
  c.words[key], c.dirty[key] = false, nil
  c.keeper, c.deputy = c.keeper ~= key and c.keeper or '', c.deputy ~= key and c.deputy or ''
end
