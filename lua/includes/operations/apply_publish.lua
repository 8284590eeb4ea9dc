-- Stores the messages that check_publish has checked, and their copies in the subscriptions. Returns the number of the
-- first message, the places, counted from 0, of the messages that were dropped, and the numbers of the scheduled
-- messages as runs.
-- @use band dead_ready lost_record never scheduled
-- @use due_name index_add index_expiry known_message_ids number_runs readable record_key session_at write_many inside
local function apply_publish(p, argv, plan)
  local incoming, copies, widths = plan.incoming, plan.copies, plan.widths
  local known = known_message_ids(p, argv, incoming)
  local number = redis.call('HINCRBY', p.store, 'seq', plan.total) - plan.total + 1
  local first, dropped, ids, refs, fields, scheduled = number, {}, {}, {}, {}, {}
  local now = p.now_text
  local columns = incoming.columns
  p.upkeep = p.upkeep or columns.o ~= nil
  for i = 1, incoming.count do
    local at = incoming.at + (i - 1) * incoming.stride
    local level, ttl, payload = '', NEVER, argv[at + incoming.stride - 1]
    local due = columns.d and tonumber(argv[at + columns.d])
    local origin, keep = columns.o and argv[at + columns.o] or '', true
    if origin ~= '' then
      local key = record_key(p.keys, tonumber(origin))
      local waited = tonumber(redis.call('ZSCORE', p.order, origin) or 0) == SCHEDULED + tonumber(origin)
      local record = waited and readable(redis.call('HGET', key, origin))
      keep = waited and record ~= LOST_RECORD
      if waited then
        level, ttl, payload = string.sub(record, 2, 2), tonumber(string.sub(record, 3, 15)), string.sub(record, 16)
        p.taken[#p.taken + 1] = origin
        p.unawaited[#p.unawaited + 1] = due_name('a', origin)
        p.bytes = p.bytes - (keep and #record or redis.call('HSTRLEN', key, origin))
        redis.call('HDEL', key, origin)
        p.used, p.changed.used = p.now, p.now -- a topic with a scheduled message is in use until it is published
      end
    else
      local id = known and columns.i and argv[at + columns.i] or ''
      if id ~= '' then
        keep = not known[id]
        if keep then
          known[id] = true
          ids[#ids + 1] = p.now
          ids[#ids + 1] = id
        end
      end
      level = columns.l and argv[at + columns.l] or ''
      ttl = columns.t and tonumber(argv[at + columns.t]) or NEVER
    end
    level = level == '' and '0' or level
    local record
    if not keep then
      dropped[#dropped + 1] = i - 1
    elseif due and (due > p.now or not copies[i]) then
      record = 's' .. level .. string.format('%013.0f', ttl) .. payload
      p.placed[#p.placed + 1] = SCHEDULED + number
      p.placed[#p.placed + 1] = number
      p.awaited[#p.awaited + 1] = due
      p.awaited[#p.awaited + 1] = due_name('a', number)
      scheduled[#scheduled + 1] = number
    elseif #copies[i] > 0 then
      local expires = math.min(p.now + math.min(ttl, p.ttl), NEVER)
      record = 'a' .. level .. now .. payload
      if expires < NEVER then
        record = 'x' .. level .. now .. string.format('%013.0f', expires) .. payload
      end
      local session = session_at(payload, 1)
      local before, nth = nil, 0
      for j = 1, #copies[i] do
        local copy = copies[i][j]
        local target, changes = copy.target, copy.changes
        nth = target == before and nth + 1 or 0
        before = target
        local own = number + nth
        local till = math.min(copy.ttl and p.now + math.min(copy.ttl, p.ttl) or expires, p.now + target.ttl, NEVER)
        local named = nth > 0 and string.format('%.0f', number) or ''
        p.bytes = p.bytes + #changes
        if copy.dead or target.index and not session then
          -- A failover may have lost dead letters that had numbers; these numbers must not be given again. This also
          -- holds for a failover that the subscription has not noticed yet (see apply_due).
          target.dead_seq = target.dead_seq + (target.leaps and 16777217 or 1)
          target.changed.dead_seq, target.leaps = target.dead_seq, false
          local name = string.format('d%.0f', target.dead_seq)
          target.placed[#target.placed + 1] = DEAD_READY + target.dead_seq
          target.placed[#target.placed + 1] = name
          target.entered[#target.entered + 1] = name
          target.entered[#target.entered + 1] = string.format('            0a%s00000%013.0f%d;%.0f;%s;', copy.dead and 'F' or 'S',
            NEVER, #record, number, nth > 0 and string.format('%.0f', own) or '') .. changes
        else
          target.placed[#target.placed + 1] = tonumber(level) * BAND + own
          target.placed[#target.placed + 1] = own
          if till < expires or changes ~= '' or nth > 0 then
            -- This copy expires earlier than its record says, or it is a further copy for the same subscription.
            target.entered[#target.entered + 1] = own
            target.entered[#target.entered + 1] = string.format('            %sa-00000%013.0f%d;%s;;', level, till, #record, named) .. changes
          end
          index_expiry(target, own, till)
          if target.index then
            index_add(target, session, 'a', own)
            target.touched[session] = 'ready'
          end
        end
        if #record + #changes > target.biggest then
          target.biggest, target.changed.biggest = #record + #changes, #record + #changes
        end
      end
      if #copies[i] > 1 then
        refs[#refs + 1] = number
        refs[#refs + 1] = #copies[i]
      end
    end
    if record then
      local key = record_key(p.keys, number)
      fields[key] = fields[key] or {}
      fields[key][#fields[key] + 1] = number
      fields[key][#fields[key] + 1] = record
      p.bytes = p.bytes + #record
      if #record > p.biggest then
        p.biggest, p.changed.biggest = #record, #record
      end
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
