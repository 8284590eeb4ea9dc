-- Ends the lock of a session at the time `at`, for at most as many messages as the pass has share left. Returns how
-- much of the share that used, and whether messages are left. A delivery counts if the holder may have begun the
-- message: the first ones, as many as it has hands, and those that were deferred, which it has asked for by number. A
-- careful holder has begun nothing from the first suspect on.
-- @use entry lapse_message note_moved reach read_many session_messages session_turn settle_turn
local function lapse_session(p, o, token, name, at)
  -- The token always has the session's lock here. The check protects another receiver's lock if there is a defect.
  if redis.call('HGET', p.states, '!' .. name) ~= token then
    o.leases[#o.leases + 1] = { token = token }
    return 1
  end
  local members = session_messages(p, name, 'h', 0, 0, o.share)
  local found = read_many('HMGET', p.entries, members)
  local begun = #members > 0 and reach(p, o, token, name)
  for i = 1, #members do
    local m, counted = note_moved(o, members[i], 'L', entry(found[i])), true
    if begun and m.e.home ~= 'f' and m.e.home ~= 'g' then
      if begun.careful and m.e.mark ~= ' ' and m.e.mark ~= '1' then
        begun.left, begun.changed = 0, true
      end
      counted = begun.left > 0
      if counted then
        begun.left, begun.changed = begun.left - 1, true
      end
    end
    m.session = name
    lapse_message(p, o, m, at, counted)
  end
  if #members < o.share then
    o.unlocked[#o.unlocked + 1] = { token = token, session = name }
    if o.turning then
      local turn = session_turn(p, o, name)
      local till = not turn.unblocked and tonumber(redis.call('HGET', p.states, '~' .. name) or 0) or 0
      turn.changed, turn.does, turn.since = true, till > at and 'blocked' or 'none', nil
      turn.till = till
      settle_turn(turn, at)
    end
  end
  return math.max(1, #members), #members >= o.share
end
