-- Returns the steps of a receive in a session. They are in one function, because most receives are not in a session,
-- and a call takes time for each function that it creates.
-- @use count_held index_add index_entries index_name index_remove most_held turns inside
local function receive_in_session(p, session)
  local steps = {}

  -- Ends the wait of the session's holder. Returns the number of messages that the call may give out, or -1 if the
  -- session is blocked or its holder has too many messages.
  function steps.begin(wanted)
    if tonumber(redis.call('ZSCORE', p.turns, 's' .. session)) >= TURNS.waiting then
      redis.call('ZADD', p.turns, TURNS.locked, 's' .. session)
      p.left = redis.call('ZREM', p.waiters, redis.call('HGET', p.states, 'w' .. session) .. ' h') == 1 or p.left
      redis.call('HDEL', p.states, 'w' .. session)
    end
    local left = MOST_HELD - count_held(p, session)
    if left <= 0 or tonumber(redis.call('HGET', p.states, '~' .. session) or 0) > p.now then
      return -1
    end
    return math.min(wanted, left)
  end

  -- Returns the names of the session's messages that can be received, from the place `seen` on.
  function steps.members(seen, most)
    local members = index_entries(p, session, 'a', 0, seen, most)
    for i = 1, #members do
      members[i] = index_name(members[i])
    end
    return members
  end

  -- Takes messages out of the order of the session. They are held by its holder, or deleted.
  function steps.take(numbers, n, held)
    for i = 1, n do
      index_remove(p, session, 'a', numbers[i])
      if held then
        index_add(p, session, 'h', numbers[i])
      end
    end
  end

  function steps.wait(waiter)
    redis.call('ZADD', p.turns, TURNS.waiting, 's' .. session)
    redis.call('HSET', p.states, 'w' .. session, waiter)
  end

  return steps
end
