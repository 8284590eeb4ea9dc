-- Ends the lock of a message that was not settled for good. The message's next state depends, in this order, on the
-- delivery limit, its home (a message that was deferred is deferred again), its expiry and the requested delay. With
-- `counted`, the delivery counts as failed, and the message is no suspect any more. With `interrupted`, the next
-- delivery reports that this one was interrupted. If `e.session` names a session, the index of that session lists the
-- message as held, and `release` removes it from there.
-- @use add_pair bury due_name entry_text expire index_remove make_deferred make_ready never side_of state_after_lock
-- @use block_session inside
local function release(p, member, e, counted, delay, interrupted)
  local side, number = side_of(member)
  local expires = tonumber(e.expires)
  if e.session then
    index_remove(p, e.session, 'h', number)
  end
  if counted then
    e.mark = ' '
  end
  local fate = state_after_lock(p, side, e, counted, p.now, interrupted)
  if p.noted and (fate == 'deferred' or fate == 'ready') then
    p.noted[#p.noted + 1] = (fate == 'deferred' and 'f' or counted and 'a' or 'r') .. member
  end
  if fate == 'dead' then
    bury(p, member, e, 'M')
  elseif fate == 'deferred' then
    make_deferred(p, member, side, number, e)
  elseif fate == 'expired' then
    expire(p, member, e)
  elseif delay > 0 and not e.session and not p.topic then -- on a topic, a dead letter returns immediately
    -- A delay that is longer than the time to live ends when the message expires.
    add_pair(p.placed, side.delayed + number, member)
    add_pair(p.entered, member, entry_text(e))
    add_pair(p.awaited, math.min(p.now + delay, expires), due_name('d', member))
  else
    if delay > 0 then
      block_session(p, e.session, math.min(p.now + delay, expires)) -- later messages must not overtake this one
    end
    if e.session then
      p.touched[e.session] = 'ready'
    end
    make_ready(p, member, side, number, e, expires < NEVER)
  end
end
