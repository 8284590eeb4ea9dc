-- Stores the messages that check_send has checked. Returns the number of the first message, and the places, counted
-- from 0, of the messages that duplicate detection has dropped.
-- @use band never scheduled
-- @use due_name index_add index_expiry known_message_ids note_size record_key store_later write_many
local function apply_send(p, argv, incoming)
  local known = known_message_ids(p, argv, incoming)
  local sessions, start = incoming.sessions, incoming.at
  local count, stride, at_ttl, at_level, at_id, at_due =
    incoming.count, incoming.stride, incoming.ttl, incoming.level, incoming.id, incoming.due
  local number = redis.call('HINCRBY', p.store, 'seq', count) - count
  local first, dropped, biggest = number + 1, {}, 0
  local plain = 'a0' .. p.now_text
  local default = plain
  if p.now + p.ttl < NEVER then
    default = 'x' .. string.sub(plain, 2) .. string.format('%013.0f', p.now + p.ttl)
  end
  local key, fields, ids, placed, bytes = record_key(p.keys, first), {}, {}, p.placed, 0
  local next_key = math.floor(first / 4096) * 4096 + 4096
  local f, o, expiring = 0, #placed, p.horizon < NEVER or p.ttl < NEVER
  for i = 1, count do
    local at = start + (i - 1) * stride
    number = number + 1
    if number == next_key then
      store_later(p, key, fields)
      key, fields, f, next_key = record_key(p.keys, number), {}, 0, number + 4096
    end
    local header = default
    local session = sessions and sessions[i]
    if stride == 1 then -- most messages have no columns: there is nothing to check
      o = o + 2
      placed[o - 1] = number
      placed[o] = number
      if session then
        index_add(p, session, 'a', number)
        p.touched[session] = 'ready'
      end
      if expiring then
        index_expiry(p, number, p.now + p.ttl)
      end
    else
      local id = known and argv[at + at_id] or ''
      if id ~= '' and known[id] then
        dropped[#dropped + 1], header = i - 1, nil
      else
        if id ~= '' then
          known[id] = true
          ids[#ids + 1] = p.now
          ids[#ids + 1] = id
        end
        -- Messages of a session keep their order, so their level does not count.
        local level = at_level and not session and argv[at + at_level] or ''
        level = level == '' and '0' or level
        local ttl = at_ttl and tonumber(argv[at + at_ttl]) or NEVER
        local due = at_due and tonumber(argv[at + at_due]) or 0
        if due > p.now then
          header = 's' .. level .. string.format('%013.0f', ttl)
          placed[o + 1] = SCHEDULED + number
          p.awaited[#p.awaited + 1] = due
          p.awaited[#p.awaited + 1] = due_name('a', number)
          if session then
            index_add(p, session, 's', number)
          end
        else
          local expires = math.min(p.now + math.min(ttl, p.ttl), NEVER)
          if expires < NEVER then
            header = 'x' .. level .. string.sub(plain, 3) .. string.format('%013.0f', expires)
          else
            header = 'a' .. level .. string.sub(plain, 3)
          end
          placed[o + 1] = tonumber(level) * BAND + number
          index_expiry(p, number, expires)
          if session then
            index_add(p, session, 'a', number)
            p.touched[session] = 'ready'
          end
        end
        placed[o + 2], o = number, o + 2
      end
    end
    if header then
      local record = header .. argv[at + stride - 1]
      local size = #record
      bytes = bytes + size
      if size > biggest then
        biggest = size
      end
      f = f + 2
      fields[f - 1] = number
      fields[f] = record
    end
  end
  store_later(p, key, fields)
  if #ids > 0 then
    write_many('ZADD', p.dedup, ids)
  end
  p.bytes = p.bytes + bytes
  note_size(p, biggest)
  return first, dropped
end
