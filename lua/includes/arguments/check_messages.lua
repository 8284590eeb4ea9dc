-- Checks the messages of a call, from the argument `at` on. Each message consists of its columns and then its payload;
-- `letters` names the columns that are allowed. Returns a table, or nil and a refusal. The table says where each part
-- of a message is in the arguments. Its field `without` is the index, counted from 0, of the first message that has no
-- session. Its field `sessions` lists the session of each message, if the entity is a topic or requires sessions.
-- @use levels never
-- @use refuse refuse_full session_at store_limits too_many_ids whole_number
local function check_messages(p, argv, columns, letters, at)
  local stride = #columns + 1
  local count = (#argv - at + 1) / stride
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return nil, refuse('BADCALL', 'messages')
  end
  local place = {}
  for i = 1, #columns do
    local letter = string.sub(columns, i, i)
    if place[letter] or not string.find(letters, letter, 1, true) then
      return nil, refuse('BADCALL', 'columns')
    end
    place[letter] = i - 1
  end
  if p.shared then
    return nil, refuse('BADCALL', 'a subscription takes messages from its topic only')
  end
  if p.topic ~= (place.r ~= nil) then
    return nil, refuse('BADCALL', 'send is for queues, and publish is for topics')
  end
  if p.status == 'SendDisabled' or p.status == 'Disabled' then
    return nil, refuse('DISABLED', p.status)
  end
  local ttl, level, due, changed, origin = place.t, place.l, place.d, place.c, place.o
  local limits = store_limits(p)
  local largest, total, changes, without = limits[STORE.largest] + 0, 0, 0, nil
  local sessions = (p.index or p.topic) and {} or nil
  for i = 1, count do
    local last = at + i * stride - 1
    local size = #argv[last]
    if size > largest then
      return nil, refuse('TOOLARGE', string.format('%d', i - 1))
    end
    total = total + size
    if sessions then
      local session = session_at(argv[last], 1)
      if not session then
        without = without or i - 1
      elseif #session > 512 or string.find(session, '\255', 1, true) then
        return nil, refuse('BADCALL', string.format('message %d', i - 1))
      end
      sessions[i] = session
    end
    if stride > 1 then
      local first = last - stride + 1
      -- The changes of a message that was scheduled before are already stored, so their bytes do not count.
      if changed and not (origin and argv[first + origin] ~= '') then
        changes = changes + #argv[first + changed]
      end
      if level and not (argv[first + level] == '' or whole_number(argv[first + level], 0, LEVELS - 1))
        or ttl and not (argv[first + ttl] == '' or whole_number(argv[first + ttl], 0, NEVER))
        or due and not (argv[first + due] == '' or whole_number(argv[first + due], 0, NEVER - 1)) then
        return nil, refuse('BADCALL', string.format('message %d', i - 1))
      end
    end
  end
  if count > 1 and (total > 4194304 or changes > 4194304) then
    return nil, refuse('BADCALL', 'messages')
  end
  local refused = refuse_full(p, limits, total > 0 and total + changes or 0)
  if refused then
    return nil, refused
  end
  local most_ids = place.i and p.window and tonumber(limits[STORE.most_ids]) or 0
  if most_ids > 0 then
    local over, known = too_many_ids(p, argv, at, count, stride, place, most_ids)
    if over then
      return nil, refuse('QUOTA', string.format('ids %d %d', known, most_ids))
    end
  end
  return {
    at = at, stride = stride, count = count, ttl = ttl, level = level, id = place.i, due = due, route = place.r,
    sessions = sessions, without = without, columns = place, bytes = total + changes,
  }
end
