#!lua flags=allow-oom
-- Gives out the oldest messages of a side that can be received: locked under a token for one lock duration, or deleted at
-- once. What turns out to be expired is not given out. A receiver that finds nothing may have itself woken. A repetition
-- gives out what the token holds; where messages were deleted, that is nothing: whoever deletes at once takes each message at
-- most once.
--
-- Where none is wanted, this is a look: it says whether there is something to be received, gives none of it out, and is in
-- all else a receive, which found nothing if there is nothing. What has expired and is still there counts. A look has no
-- place in a lane: made again, it looks again.
--
-- KEYS[1-27] partition   in the order of includes/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    side        nothing, or d for the dead-letter queue
-- ARGV[8]    mode        lock, or delete
-- ARGV[9]    wanted      how many messages at most; 0 for a look
-- ARGV[10]   room        how many bytes at most, though always one message
-- ARGV[11]   token       of the lease, chosen at random by the caller
-- ARGV[12]   waiter      the channel on which the receiver waits if it finds nothing, or nothing
-- ARGV[13]   waiting_for how many messages it will want then; 0 if it does not wait, and waits no longer if it did
--
-- Result: { more, in how many ms something is due if nothing was given out, or 0, lock duration, names, records, for some:
--   place, failures, reason, changes }; a look that found something says -1 where others say when something is due
-- Refusals: call, DISABLED (receiving is)
-- @use advance
-- @use band
-- @use begin
-- @use beside
-- @use drop
-- @use entry
-- @use expire
-- @use extra
-- @use finish
-- @use flush
-- @use gather
-- @use hand_again
-- @use hold
-- @use living
-- @use next_due
-- @use readable
-- @use record_of
-- @use records
-- @use refuse
-- @use repeated
-- @use runs
-- @use sides
-- @use token_of
-- @use whole
local p, refusal = begin(KEYS, ARGV, 'receive', 13, false)
if not p then
  return refusal
end
local token = token_of(ARGV[11])
if p.repeated and token then
  return repeated(p, hand_again(p, token))
end
local side, mode, wanted, room = SIDES[ARGV[7]], ARGV[8], whole(ARGV[9], 0, 1000), whole(ARGV[10], 1, 1073741824)
local waiter, waiting_for = ARGV[12], whole(ARGV[13], 0, 1000)
if not side or not wanted or not room or not token or not waiting_for or mode ~= 'lock' and mode ~= 'delete' then
  return refuse('BADCALL', 'receive')
end
if wanted == 0 and p.lane ~= '' then
  return refuse('BADCALL', 'a look has no place in a lane')
end
if redis.call('HEXISTS', p.leases, token) == 1 then
  return refuse('BADCALL', 'token')
end
if waiter ~= '' and not beside(p.state, waiter) then
  return refuse('BADCALL', 'waiter')
end
if p.status == 'ReceiveDisabled' or p.status == 'Disabled' then
  return refuse('DISABLED', p.status)
end

advance(p, 100)
if waiter ~= '' then
  waiter = waiter .. ' ' .. side.prefix -- it may wait at both sides
  redis.call('ZREM', p.waiters, waiter)
end

local names, numbers, found, extras, entered = {}, {}, {}, {}, {}
local n, seen, full, late, spent = 0, 0, false, 0, 0
local header, length, tail = nil, nil, nil
local main, from = side.prefix == '', #side.prefix + 1
while n < wanted and not full do
  local members = redis.call('ZRANGE', p.order, side.from, side.to, 'BYSCORE', 'LIMIT', seen, wanted - n)
  local asked = #members
  if asked == 0 then
    break
  end
  local entries, counted, stored = gather('HMGET', p.entries, members), {}, members
  for i = 1, asked do
    counted[i] = tonumber(main and members[i] or string.sub(members[i], from))
  end
  if not main or p.shared then
    stored = {}
    for i = 1, asked do
      stored[i] = record_of(members[i], entries[i])
    end
  end
  local fit = readable(p, stored, room)
  if fit < asked then
    asked, stored = fit, { unpack(stored, 1, fit) }
    counted[fit + 1] = nil
  end
  seen = seen + asked
  local bodies = records(p.keys, stored, not p.shared and main and counted or nil)
  for i = 1, asked do
    local member, text, record = members[i], entries[i], bodies[i]
    local size, head, expires = #record, string.sub(record, 1, 2), '9999999999999'
    if main and text then
      expires = string.sub(text, 21, 33)
    elseif main and string.byte(head) == 120 then
      expires = string.sub(record, 16, 28)
    end
    if expires ~= '9999999999999' and tonumber(expires) <= p.now then
      expire(p, member, living(text, record))
      p.unawaited[#p.unawaited + 1] = 'e' .. member
      late, spent = late + 1, spent + size
      if late == 100 or spent > 2097152 then
        full, p.more = true, 1
        break
      end
    else
      if size > room and n > 0 then
        full = true
        break
      end
      room = room - size
      n = n + 1
      names[n], numbers[n], found[n] = member, counted[i], record
      if text then
        extra(extras, n, text)
        entered[n] = token .. string.sub(text, 13)
      elseif expires ~= '9999999999999' then
        entered[n] = table.concat({ token, string.sub(head, 2), 'a-00000', expires, size, ';;' })
      else
        if size ~= length or head ~= header then
          header, length = head, size
          tail = token .. string.sub(head, 2) .. 'a-000009999999999999' .. size .. ';;'
        end
        entered[n] = tail
      end
      if expires ~= '9999999999999' then
        p.unawaited[#p.unawaited + 1] = 'e' .. member
      end
      if n == wanted then
        break
      end
    end
  end
end

if late > 0 then
  flush(p)
end
if n > 0 and mode == 'lock' then
  local placed, written, base, at = p.placed, p.entered, side.locked, 0
  for i = 1, n do
    local member = names[i]
    placed[at + 1], placed[at + 2] = base + numbers[i], member
    written[at + 1], written[at + 2] = member, entered[i]
    at = at + 2
  end
  hold(p, token, p.logical + p.lock, n, runs(side.prefix, numbers))
elseif n > 0 then
  for i = 1, n do
    local e = entry(entered[i])
    p.taken[#p.taken + 1] = names[i]
    p.forgotten[#p.forgotten + 1] = names[i]
    drop(p, e.record == '' and names[i] or e.record, e.size, #e.changes)
  end
end

local due = 0
if wanted == 0 and redis.call('ZCOUNT', p.order, side.from, side.to) > 0 then
  due = -1
elseif n == 0 then
  flush(p)
  due = next_due(p)
  if waiter ~= '' and waiting_for > 0 then
    if not p.waiting then
      p.changed.waiting = '1'
    end
    -- Those that have gone without a word go, a few at a time, whenever one comes.
    local gone = redis.call('ZRANGE', p.waiters, side.room * BAND, side.room * BAND + math.floor(p.now / 10) * 128 - 1, 'BYSCORE',
      'LIMIT', 0, 10)
    if #gone > 0 then
      redis.call('ZREM', p.waiters, unpack(gone))
    end
    redis.call('ZADD', p.waiters, side.room * BAND + math.floor(p.now / 10 + 3000) * 128 + math.min(waiting_for, 127), waiter)
  end
end
finish(p, '')
return { p.more, due, p.lock, names, found, extras }
