#!lua flags=allow-oom
-- Deletes messages that were enqueued before a time: active, delayed and deferred ones, and leaves those that are locked or
-- scheduled. Looks at so many of them and tells where to go on.
--
-- KEYS[1-30] partition   in the order of includes/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    side        nothing, or d for the dead-letter queue
-- ARGV[8]    before      time in ms
-- ARGV[9]    share       how many messages are looked at
-- ARGV[10]   from        where the last call ended, 0 at first
--
-- Result: { more, how many were deleted, where to go on as text, or nothing at the end }
-- Refusals: call
-- @use advance
-- @use band
-- @use begin
-- @use drop
-- @use finish
-- @use gather
-- @use living
-- @use readable
-- @use record_of
-- @use records
-- @use refuse
-- @use repeated
-- @use session_in
-- @use sides
-- @use stand_up
-- @use unseat
-- @use whole
local p, refusal = begin(KEYS, ARGV, 'purge', 10, false)
if not p then
  return refusal
end
if p.repeated then
  local count, onwards = string.match(p.repeated, '^(%d+) (%d*)$')
  return repeated(p, { 0, tonumber(count), onwards })
end
local side, before, share = SIDES[ARGV[7]], whole(ARGV[8], 0, 9999999999999), whole(ARGV[9], 1, 1000)
local from = string.find(ARGV[10], '^%d+$') and #ARGV[10] <= 16 and tonumber(ARGV[10])
if not side or not side.from or not before or not share or not from then
  return refuse('BADCALL', 'purge')
end

advance(p, 100)
local ranges = {
  { tonumber(side.from), tonumber(side.to), 'e' }, { side.delayed, side.delayed + BAND - 1, 'w' },
  { side.deferred, side.deferred + BAND - 1 },
}
local count, onwards, room = 0, '', 4194304
for r = 1, #ranges do
  local first, last, kind = math.max(ranges[r][1], from), ranges[r][2], ranges[r][3]
  while first <= last and share > 0 do
    local found = redis.call('ZRANGE', p.order, first, last, 'BYSCORE', 'LIMIT', 0, math.min(share, 64), 'WITHSCORES')
    if #found == 0 then
      break
    end
    local members, numbers = {}, {}
    for i = 1, #found / 2 do
      members[i] = found[2 * i - 1]
    end
    local entries = gather('HMGET', p.entries, members)
    for i = 1, #members do
      numbers[i] = record_of(members[i], entries[i])
    end
    local fit = readable(p, numbers, room)
    local bodies = records(p.keys, { unpack(numbers, 1, fit) })
    for i = 1, fit do
      room = room - #bodies[i]
      local member = members[i]
      if tonumber(string.sub(bodies[i], 3, 15)) < before then
        local e = living(entries[i], bodies[i])
        p.taken[#p.taken + 1] = member
        p.forgotten[#p.forgotten + 1] = member
        if p.seats and side.prefix == '' then
          if kind then
            stand_up(p, member, bodies[i])
          else
            unseat(p, session_in(bodies[i]), 'p', tonumber(member))
          end
        end
        if kind == 'w' or kind and e.expires ~= '9999999999999' then
          p.unawaited[#p.unawaited + 1] = kind .. member
        end
        drop(p, numbers[i], e.size, #e.changes)
        count = count + 1
      end
    end
    share = room > 0 and share - fit or 0
    first = tonumber(found[2 * fit]) + 1
  end
  if share == 0 then
    onwards = string.format('%.0f', math.max(first, from))
    break
  end
end
finish(p, string.format('%d %s', count, onwards))
return { p.more, count, onwards }
