#!lua
-- Stores messages. Each message is active immediately, or is scheduled if it names a future time. The messages get
-- consecutive numbers, and the first of these numbers is in the result. A message that duplicate detection drops uses
-- up its number too.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    columns     the fields before each payload: t time to live, l level, i message id, d due time, or nothing
-- ARGV[8...] messages    for each message its columns (empty if the message has no value for a column), then its
--   payload
--
-- Result: { more, the first number, the number of messages that were dropped }
-- Refusals: call, DISABLED (sending is disabled), TOOLARGE (a message is too large; the detail is its index, counted
--   from 0), QUOTA (the entity is full; the detail gives its bytes and its quota), DUE (the entity is full, but due
--   work had to be done first), SESSIONS (a message has no session, but the entity requires one; the detail is its
--   index, counted from 0)
-- @use advance answer_repetition band begin check_messages due_name finish index_add index_expiry known_message_ids
-- @use never record_key refuse scheduled write_many
local p, refusal = begin(KEYS, ARGV, 'send', 7, true)
if not p then
  return refusal
end
if p.repeated then
  local first, dropped = string.match(p.repeated, '^(%d+) (%d+)$')
  return answer_repetition(p, { 0, tonumber(first), tonumber(dropped) })
end

local incoming, refused = check_messages(p, ARGV, ARGV[7], 'tlid', 8)
if not incoming then
  return refused
end
if p.index and incoming.without then
  return refuse('SESSIONS', string.format('%d', incoming.without))
end

advance(p, 100)

local known = known_message_ids(p, ARGV, incoming)
local sessions = incoming.sessions
local count, stride, at_ttl, at_level, at_id, at_due =
  incoming.count, incoming.stride, incoming.ttl, incoming.level, incoming.id, incoming.due
local number = redis.call('HINCRBY', p.store, 'seq', count) - count
local first, dropped, biggest = number + 1, 0, 0
local plain = 'a0' .. string.format('%013.0f', p.now)
local default = plain
if p.now + p.ttl < NEVER then
  default = 'x' .. string.sub(plain, 2) .. string.format('%013.0f', p.now + p.ttl)
end
local key, fields, ids, placed, bytes = record_key(p.keys, first), {}, {}, p.placed, 0
local next_key = math.floor(first / 4096) * 4096 + 4096
local f, o = 0, 0
for i = 1, count do
  local at = 8 + (i - 1) * stride
  number = number + 1
  if number == next_key then
    if f > 0 then
      write_many('HSET', key, fields)
    end
    key, fields, f, next_key = record_key(p.keys, number), {}, 0, number + 4096
  end
  local header = default
  local session = sessions and sessions[i]
  if stride == 1 then -- most messages have no columns: there is nothing to check
    placed[o + 1], placed[o + 2], o = number, number, o + 2
    if session then
      index_add(p, session, 'a', number)
      p.touched[session] = 'ready'
    end
    if p.horizon < NEVER or p.ttl < NEVER then
      index_expiry(p, number, p.now + p.ttl)
    end
  else
    local id = known and ARGV[at + at_id] or ''
    if id ~= '' and known[id] then
      dropped, header = dropped + 1, nil
    else
      if id ~= '' then
        known[id] = true
        ids[#ids + 1] = p.now
        ids[#ids + 1] = id
      end
      -- Messages of a session keep their order, so their level does not count.
      local level = at_level and not session and ARGV[at + at_level] or ''
      level = level == '' and '0' or level
      local ttl = at_ttl and tonumber(ARGV[at + at_ttl]) or NEVER
      local due = at_due and tonumber(ARGV[at + at_due]) or 0
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
    local record = header .. ARGV[at + stride - 1]
    local size = #record
    bytes = bytes + size
    if size > biggest then
      biggest = size
    end
    fields[f + 1], fields[f + 2], f = number, record, f + 2
  end
end
if f > 0 then
  write_many('HSET', key, fields)
end
if #ids > 0 then
  write_many('ZADD', p.dedup, ids)
end
p.bytes = bytes
if biggest > p.biggest then
  p.changed.biggest = biggest
end
finish(p, string.format('%.0f %d', first, dropped))
return { p.more, first, dropped }
