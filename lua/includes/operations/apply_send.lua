-- Stores the messages that check_send has checked. Returns the number of the first message, and the places, counted
-- from 0, of the messages that duplicate detection has dropped.
-- @use add_pair band digits due_name index_add index_expiry known_message_ids never note_size number_text
-- @use records_to_store scheduled write_many
local function apply_send(p, argv, incoming)
  local known = known_message_ids(p, argv, incoming)
  local sessions, start = incoming.sessions, incoming.at
  local count, stride, at_ttl, at_level, at_id, at_due =
    incoming.count, incoming.stride, incoming.ttl, incoming.level, incoming.id, incoming.due
  local number = redis.call('HINCRBY', p.store, 'seq', number_text[count]) - count
  local first, dropped, biggest = number + 1, {}, 0

  -- Return the header of a message that is active now.
  local function active(level, expires)
    local header = level .. p.now_text
    return expires < NEVER and 'x' .. header .. string.format('%013.0f', expires) or 'a' .. header
  end

  local usual_end = math.min(p.now + p.ttl, NEVER)
  local usual = active('0', usual_end)
  local fields, f, next_key, ids, placed, bytes = nil, 0, first, {}, p.placed, 0
  local o, expiring = #placed, p.horizon < NEVER or p.ttl < NEVER
  for i = 1, count do
    local at = start + (i - 1) * stride
    number = number + 1
    if number == next_key then
      fields, next_key = records_to_store(p, number), math.floor(number / 4096) * 4096 + 4096
      f = #fields
    end
    local name, session = digits(number), sessions and sessions[i]
    local header, place, expires, letter = usual, name, usual_end, 'a'
    if stride > 1 then -- most messages have no columns: there is nothing to check
      local id = known and argv[at + at_id] or ''
      -- Messages of a session keep their order, so their level does not count.
      local level = at_level and not session and argv[at + at_level] or ''
      level = level == '' and '0' or level
      local ttl = at_ttl and tonumber(argv[at + at_ttl]) or NEVER
      local due = at_due and tonumber(argv[at + at_due]) or 0
      if id ~= '' and known[id] then
        dropped[#dropped + 1], header = i - 1, nil
      elseif due > p.now then
        header, place, letter = 's' .. level .. string.format('%013.0f', ttl), SCHEDULED + number, 's'
        add_pair(p.awaited, due, due_name('a', number))
      else
        expires = math.min(p.now + math.min(ttl, p.ttl), NEVER)
        header, place = active(level, expires), level * BAND + number
      end
      if id ~= '' and header then
        known[id] = true
        add_pair(ids, p.now, id)
      end
    end
    if header then
      o = o + 2
      placed[o - 1] = place
      placed[o] = name
      if session then
        index_add(p, session, letter, number)
      end
      if letter == 'a' then
        if session then
          p.touched[session] = 'ready'
        end
        if expiring or expires < NEVER then
          index_expiry(p, number, expires)
        end
      end
      local record = header .. argv[at + stride - 1]
      local size = #record
      bytes = bytes + size
      if size > biggest then
        biggest = size
      end
      f = f + 2
      fields[f - 1] = name
      fields[f] = record
      if count == 1 and p.credit ~= '' then
        p.sent = { [name] = record } -- it may be given to a receiver now
      end
    end
  end
  if #ids > 0 then
    write_many('ZADD', p.dedup, ids)
  end
  p.bytes = p.bytes + bytes
  note_size(p, biggest)
  return first, dropped
end
