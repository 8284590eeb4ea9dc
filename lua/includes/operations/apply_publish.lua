-- Stores the messages that check_publish has checked, and their copies in the subscriptions. Returns the number of the
-- first message, the places, counted from 0, of the messages that were dropped, and the numbers of the scheduled
-- messages as runs.
--
-- A message that is being spread waits under its own number, with the record that its copies have. It counts as a user
-- of this record, so the record stays if receivers are faster than the calls that make the other copies. A later call
-- may make its copy for a subscription that has later messages already, if a client set the message aside meanwhile.
-- Then the copy has a number of its own, because a message must come after those that were there before it (see
-- index_expiry).
-- @use add_pair band dead_ready last_place lost_record never scheduled
-- @use due_name flush index_add index_expiry known_message_ids note_size number_runs readable record_key inside
-- @use session_at write_many inside
local function apply_publish(p, argv, plan)
  local incoming, copies, widths = plan.incoming, plan.copies, plan.widths
  local known = known_message_ids(p, argv, incoming)
  local number = redis.call('HINCRBY', p.store, 'seq', plan.total) - plan.total + 1
  local first, dropped, ids, refs, fields, scheduled = number, {}, {}, {}, {}, {}
  local now = p.now_text
  local columns, last, places = incoming.columns, plan.to == '', {}
  p.upkeep = p.upkeep or columns.o ~= nil
  if #p.awaited + #p.unawaited > 0 then
    flush(p) -- earlier operations of a transaction may have published here
  end
  -- Whether messages wait that no later message may overtake: those that are being spread are due at 0, so that they
  -- come before those that wait for their first call, which are due at 1.
  local behind = redis.call('ZCOUNT', p.due, 0, 1) > 0
  for i = 1, incoming.count do
    local at = incoming.at + (i - 1) * incoming.stride
    local level, ttl, payload = '', NEVER, argv[at + incoming.stride - 1]
    local due = columns.d and tonumber(argv[at + columns.d])
    local origin, keep = columns.o and argv[at + columns.o] or '', true
    local begun, own_number, stored = false, number, nil
    if origin ~= '' then
      local key = record_key(p.keys, tonumber(origin))
      local waited = tonumber(redis.call('ZSCORE', p.order, origin) or 0) == SCHEDULED + tonumber(origin)
      local reached = waited and redis.call('HGET', p.entries, '>' .. origin) or ''
      waited = waited and reached == plan.reached
      stored = waited and readable(redis.call('HGET', key, origin))
      keep = waited and stored ~= LOST_RECORD
      begun = waited and reached ~= ''
      if begun then
        own_number = tonumber(origin)
      elseif waited then
        level, ttl, payload = string.sub(stored, 2, 2), tonumber(string.sub(stored, 3, 15)), string.sub(stored, 16)
        p.bytes = p.bytes - (keep and #stored or redis.call('HSTRLEN', key, origin))
        redis.call('HDEL', key, origin)
      end
      if waited then
        if not begun or last or not keep then
          p.taken[#p.taken + 1] = origin
          p.unawaited[#p.unawaited + 1] = due_name('a', origin)
        end
        p.used, p.changed.used = p.now, p.now -- a topic with a scheduled message is in use until it is published
      end
    else
      local id = known and columns.i and argv[at + columns.i] or ''
      if id ~= '' then
        keep = not known[id]
        if keep then
          known[id] = true
          add_pair(ids, p.now, id)
        end
      end
      level = columns.l and argv[at + columns.l] or ''
      ttl = columns.t and tonumber(argv[at + columns.t]) or NEVER
    end
    level = level == '' and '0' or level
    local record, users
    if not keep then
      dropped[#dropped + 1] = i - 1
      if begun then
        users = 0
        p.forgotten[#p.forgotten + 1] = '>' .. origin
      end
    elseif due and (due > p.now or not copies[i]) or behind and origin == '' then
      record = 's' .. level .. string.format('%013.0f', ttl) .. payload
      if not due or due <= p.now then
        due = 1
      end
      behind = behind or due <= 1
      add_pair(p.placed, SCHEDULED + number, number)
      add_pair(p.awaited, due, due_name('a', number))
      scheduled[#scheduled + 1] = number
    elseif begun or #copies[i] > 0 or not last then
      local expires, session
      if begun then
        record, level = stored, string.sub(stored, 2, 2)
        local at_payload = string.byte(record) == 120 and 29 or 16
        expires = at_payload == 29 and tonumber(string.sub(record, 16, 28)) or NEVER
        session = session_at(record, at_payload)
      else
        expires = math.min(p.now + math.min(ttl, p.ttl), NEVER)
        record = 'a' .. level .. now .. payload
        if expires < NEVER then
          record = 'x' .. level .. now .. string.format('%013.0f', expires) .. payload
        end
        session = session_at(payload, 1)
      end
      users = #copies[i] + (last and 0 or 1)
      local before, nth = nil, 0
      for j = 1, #copies[i] do
        local copy = copies[i][j]
        local target, changes = copy.target, copy.changes
        nth = target == before and nth + 1 or 0
        before = target
        local own = nth == 0 and own_number or number + nth
        local till = math.min(copy.ttl and p.now + math.min(copy.ttl, p.ttl) or expires, p.now + target.ttl, NEVER)
        local named = nth > 0 and string.format('%.0f', own_number) or ''
        p.bytes = p.bytes + #changes
        if copy.dead or target.index and not session then
          -- A failover may have lost dead letters that had numbers; these numbers must not be given again. This also
          -- holds for a failover that the subscription has not noticed yet (see apply_due).
          target.dead_seq = target.dead_seq + (target.leaps and 16777217 or 1)
          target.marked, target.leaps = true, false
          local name = string.format('d%.0f', target.dead_seq)
          add_pair(target.placed, DEAD_READY + target.dead_seq, name)
          target.entered[#target.entered + 1] = name
          target.entered[#target.entered + 1] = string.format('            0a%s00000%013.0f%d;%.0f;%s;', copy.dead and 'F' or 'S',
            NEVER, #record, own_number, nth > 0 and string.format('%.0f', own) or '') .. changes
        else
          local base = tonumber(level) * BAND
          if begun then
            if base + own < last_place(places, target, base) then
              own, named = number, string.format('%.0f', own_number)
            end
            places[target][base] = base + own
          end
          add_pair(target.placed, base + own, own)
          if till < expires or changes ~= '' or named ~= '' then
            -- This copy expires earlier than its record says, or its number is not that of the record.
            add_pair(target.entered, own,
              string.format('            %sa-00000%013.0f%d;%s;;', level, till, #record, named) .. changes)
          end
          index_expiry(target, own, till)
          if target.index then
            index_add(target, session, 'a', own)
            target.touched[session] = 'ready'
          end
        end
        note_size(target, #record + #changes)
      end
      if not last then
        if not begun then
          add_pair(p.placed, SCHEDULED + number, number)
          add_pair(p.awaited, 0, due_name('a', number))
        end
        add_pair(p.entered, string.format('>%.0f', own_number), plan.to)
      elseif begun then
        p.forgotten[#p.forgotten + 1] = '>' .. origin
      end
    end
    if begun then
      users = users + tonumber(redis.call('HGET', p.refs, origin) or 1) - 1
      if users == 0 then
        p.bytes = p.bytes - redis.call('HSTRLEN', record_key(p.keys, own_number), origin)
        redis.call('HDEL', record_key(p.keys, own_number), origin)
      end
      if users < 2 then
        redis.call('HDEL', p.refs, origin)
      end
    end
    if users and users > 1 then
      add_pair(refs, own_number, users)
    end
    if record and not begun then
      local key = record_key(p.keys, number)
      fields[key] = fields[key] or {}
      add_pair(fields[key], number, record)
      p.bytes = p.bytes + #record
      note_size(p, #record)
    end
    number = number + widths[i]
  end
  for key, list in pairs(fields) do
    write_many('HSET', key, list)
  end
  if #refs > 0 then
    write_many('HSET', p.refs, refs)
  end
  if #ids > 0 then
    write_many('ZADD', p.dedup, ids)
  end
  if plan.fence then
    p.changed.route_fence = plan.fence
  end
  return first, dropped, #scheduled > 0 and number_runs('', scheduled) or ''
end
