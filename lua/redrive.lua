#!lua flags=allow-oom
-- Moves dead letters back to the main side of their partition, in the order of the call. There each message is active
-- under a new number, as if it had been sent now: its delivery count is 0, its time to live begins again, and it is the
-- last message of its session. A message whose record is lost stays. A transfer dead letter becomes a transfer again,
-- and waits to be moved. Each message is moved at most once, because its old name no longer exists afterwards. Messages
-- that a receiver holds stay. The call checks neither the quota nor duplicates, because the messages are already
-- stored.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] messages    for each message its name, its time to live in ms (nothing: that of the entity), and its
--   changed properties, which replace all earlier changes; those of a transfer contain its destination. All messages
--   are dead letters, or all are transfer dead letters. A call without messages only asks for the last number
--
-- Result: { more, the number of the first message on the main side, the names of messages that are not dead letters
--   here, are locked or have lost their records, the names of messages that have no session although the entity
--   requires one, the number of messages at the end of the list that did not fit, the last number of the dead-letter
--   queue }. The numbers of the other messages follow without a gap. The number of messages that did not fit leaves out
--   missing messages.
-- Refusals: call, DISABLED (the entity is not active), DUE (some messages are not there, but due work had to be done
--   first)
-- Facts: use
-- @use add_pair advance answer_repetition band discard due_name entry finish index_add index_expiry lost_record never
-- @use place_transfer read_many read_messages refuse refuse_while_due session_at sides split_words store_record
-- @use whole_number
if p.repeated then
  local first, last, left, missing, unfit = string.match(p.repeated, '^(%d+) (%d+) (%d+)|(.*)|(.*)$')
  return answer_repetition(p, { 0, tonumber(first), split_words(missing), split_words(unfit), tonumber(left), tonumber(last) })
end
local side, names, places = SIDES[#ARGV > 6 and string.sub(ARGV[7], 1, 1) or 'd'], {}, {}
for at = 7, #ARGV, 3 do
  local name, ttl = ARGV[at], ARGV[at + 1]
  if not string.find(name, '^[dt][1-9]%d*$') or string.sub(name, 1, 1) ~= side.prefix or #name > 16 or places[name]
    or not ARGV[at + 2] or side.prefix == 't' and ARGV[at + 2] == '' or ttl ~= '' and not whole_number(ttl, 0, NEVER) then
    return refuse('BADCALL', 'messages')
  end
  names[#names + 1], places[name] = name, at
end
if #names > 1000 or #names > 0 and p.topic and side.prefix == 'd' then
  return refuse('BADCALL', 'messages')
end
if p.status ~= 'Active' then
  return refuse('DISABLED', p.status)
end

advance(p, 100)
local scores = read_many('ZMSCORE', p.order, names)
local there, missing, letters = {}, {}, {}
for i = 1, #names do
  local name = names[i]
  local band = scores[i] and tonumber(scores[i]) - tonumber(string.sub(name, 2))
  if band and (band == side.ready or band == side.kept or band == side.delayed or band == side.deferred) then
    there[#there + 1] = name
    letters[name] = band == side.delayed and 'd'
  else
    missing[#missing + 1] = name
  end
end
if #missing > 0 and p.more == 1 then
  return refuse_while_due(p)
end

local fit, entries, found = read_messages(p, there, 2097152)
local moving, sessions, unfit = {}, {}, {}
for i = 1, fit do
  local session = p.index and side.prefix == 'd' and session_at(found[i], string.byte(found[i]) == 120 and 29 or 16)
  if found[i] == LOST_RECORD then
    missing[#missing + 1] = there[i]
  elseif p.index and side.prefix == 'd' and not session then
    unfit[#unfit + 1] = there[i]
  else
    moving[#moving + 1], sessions[i] = i, session
  end
end
local number = redis.call('HINCRBY', p.store, 'seq', #moving) - #moving
local first = number + 1
for j = 1, #moving do
  local i = moving[j]
  local name, record, session, e = there[i], found[i], sessions[i], entry(entries[i])
  local ttl, changes = tonumber(ARGV[places[name] + 1]) or NEVER, ARGV[places[name] + 2]
  number = number + 1
  local level = session and '0' or string.sub(record, 2, 2)
  local content = string.sub(record, string.byte(record) == 120 and 29 or 16)
  if letters[name] then
    p.unawaited[#p.unawaited + 1] = due_name(letters[name], name)
  end
  discard(p, name, e)
  if side.prefix == 't' then
    place_transfer(p, number, level, content, changes)
  else
    local expires = math.min(p.now + math.min(ttl, p.ttl), NEVER)
    record = string.format(expires < NEVER and 'x%s%013.0f%013.0f' or 'a%s%013.0f', level, p.now, expires) .. content
    store_record(p, number, record, #changes)
    add_pair(p.placed, tonumber(level) * BAND + number, number)
    if changes ~= '' then
      add_pair(p.entered, number,
        string.format('            %sa-00000%013.0f%d;;;', level, expires, #record) .. changes)
    end
    index_expiry(p, number, expires)
    if session then
      index_add(p, session, 'a', number)
      p.touched[session] = 'ready'
    end
  end
end
local left = #there - fit
finish(p, string.format('%.0f %.0f %d|', first, p.dead_seq, left) .. table.concat(missing, ' ') .. '|' .. table.concat(unfit, ' '))
return { p.more, first, missing, unfit, left, p.dead_seq }
