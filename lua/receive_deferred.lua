#!lua flags=allow-oom
-- Gives out deferred messages by their names: all of them, or none if one is not there or locked. A repetition gives out what
-- the token holds; where messages were deleted, that is nothing.
--
-- KEYS[1-27] partition   in the order of includes/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    mode        lock, or delete
-- ARGV[8]    token       of the lease, chosen at random by the caller
-- ARGV[9...] names       of the messages, of either side
--
-- Result: { more, 0, lock duration, names, records, for some: place, failures, reason, changes, and the names of those that
--   are not deferred here }
-- Refusals: call, DISABLED (receiving is)
-- @use advance
-- @use begin
-- @use drop
-- @use entry
-- @use extra
-- @use finish
-- @use gather
-- @use hand_again
-- @use hold
-- @use named
-- @use record_of
-- @use records
-- @use refuse
-- @use repeated
-- @use side_of
-- @use stretches
-- @use token_of
-- @use words
local p, refusal = begin(KEYS, ARGV, 'receive_deferred', 8, true)
if not p then
  return refusal
end
local mode, token = ARGV[7], token_of(ARGV[8])
if p.repeated and token then
  local reply = hand_again(p, token)
  reply[7] = words(p.repeated)
  return repeated(p, reply)
end
local members = named(ARGV, 9)
if not members or not token or redis.call('HEXISTS', p.leases, token) == 1 or mode ~= 'lock' and mode ~= 'delete' then
  return refuse('BADCALL', 'names')
end
if p.status == 'ReceiveDisabled' or p.status == 'Disabled' then
  return refuse('DISABLED', p.status)
end

advance(p, 100)
local scores = gather('ZMSCORE', p.order, members)
local missing = {}
for i = 1, #members do
  local side, number = side_of(members[i])
  if not scores[i] or tonumber(scores[i]) ~= side.deferred + number then
    missing[#missing + 1] = members[i]
  end
end
if #missing > 0 then
  finish(p, table.concat(missing, ' '))
  return { p.more, 0, p.lock, {}, {}, {}, missing }
end

local entries, numbers, extras = gather('HMGET', p.entries, members), {}, {}
for i = 1, #members do
  numbers[i] = record_of(members[i], entries[i])
  extra(extras, i, entries[i])
end
local found = records(p.keys, numbers)
for i = 1, #members do
  local member = members[i]
  if mode == 'lock' then
    local side, number = side_of(member)
    p.placed[#p.placed + 1] = side.locked + number
    p.placed[#p.placed + 1] = member
    p.entered[#p.entered + 1] = member
    p.entered[#p.entered + 1] = token .. string.sub(entries[i], 13)
  else
    local e = entry(entries[i])
    p.taken[#p.taken + 1] = member
    p.forgotten[#p.forgotten + 1] = member
    drop(p, numbers[i], e.size, #e.changes)
  end
end
if mode == 'lock' then
  hold(p, token, p.logical + p.lock, #members, stretches(members))
end
finish(p, '')
return { p.more, 0, p.lock, members, found, extras, {} }
