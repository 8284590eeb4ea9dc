#!lua flags=allow-oom
-- Deletes messages that were enqueued before a time: active, delayed and deferred ones. Locked and scheduled messages
-- stay, and so do pinned ones. A call looks at a limited number of messages and returns the place where the next call
-- continues.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    side        nothing, or d for the dead-letter queue
-- ARGV[8]    before      time in ms
-- ARGV[9]    share       the number of messages to look at
-- ARGV[10]   from        the place that the last call returned, or 0 for the first call
-- ARGV[11]   session     the session whose messages to delete, with `=` in front, or nothing for all; no lock is
--   needed
--
-- Result: { more, the number of messages that were deleted, the place where the next call continues, as text, or
--   nothing at the end }
-- Refusals: call, SESSIONS (the entity has no sessions), DUE (due work had to be done first)
-- Facts: use
-- @use advance answer_repetition band changes_size discard due_name entry_or_default finish index_remove levels never
-- @use never_text parse_session pinned_up_to read_messages record_session refuse refuse_while_due session_messages
-- @use sides whole_number
if p.repeated then
  local count, onwards = string.match(p.repeated, '^(%d+) (%d*)$')
  return answer_repetition(p, { 0, tonumber(count), onwards })
end
local side, before, share = SIDES[ARGV[7]], whole_number(ARGV[8], 0, NEVER), whole_number(ARGV[9], 1, 1000)
local from = string.find(ARGV[10], '^%d+$') and #ARGV[10] <= 16 and tonumber(ARGV[10])
local session, unfit = parse_session(p, ARGV[11])
if unfit then
  return unfit
end
if not side or session and side.prefix ~= '' or not before or not share or not from then
  return refuse('BADCALL', 'purge')
end

advance(p, 100)
if p.more == 1 then
  return refuse_while_due(p)
end
local ranges = { { tonumber(side.from), session and BAND - 1 or tonumber(side.to), 'e', 'a' } }
local above = side.prefix == '' and p.reserved and pinned_up_to(p) + 1
for level = 0, above and LEVELS - 1 or -1 do
  ranges[level + 1] = { level * BAND + above, (level + 1) * BAND - 1, 'e' }
end
ranges[#ranges + 1] = { side.delayed, side.delayed + BAND - 1, 'd' }
ranges[#ranges + 1] = { side.deferred, side.deferred + BAND - 1, '', 'p' }

-- Return the next messages of a range, and their scores.
local function next_of(range, first, last)
  local members, scores, most = {}, {}, math.min(share, 64)
  if not session then
    local found = redis.call('ZRANGE', p.order, first, last, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
    for i = 1, #found / 2 do
      members[i], scores[i] = found[2 * i - 1], tonumber(found[2 * i])
    end
  elseif range[4] then -- messages of a session have no level and are never delayed
    members = session_messages(p, session, range[4], first - range[1], 0, most)
    for i = 1, #members do
      scores[i] = range[1] + members[i]
    end
  end
  return members, scores
end

local count, onwards, room = 0, '', 4194304
for r = 1, #ranges do
  local first, last, kind = math.max(ranges[r][1], from), ranges[r][2], ranges[r][3]
  while first <= last and share > 0 do
    local members, scores = next_of(ranges[r], first, last)
    if #members == 0 then
      break
    end
    local fit, entries, bodies = read_messages(p, members, room)
    for i = 1, fit do
      room = room - #bodies[i] - changes_size(entries[i])
      local member = members[i]
      if tonumber(string.sub(bodies[i], 3, 15)) < before then
        local e = entry_or_default(entries[i], bodies[i])
        if p.index and side.prefix == '' then
          local of = session or record_session(bodies[i]) or '' -- damaged data may name no session
          index_remove(p, of, kind == '' and 'p' or 'a', tonumber(member))
          if kind ~= '' then
            p.touched[of] = true -- it may have no other message to receive
          end
        end
        if kind == 'd' or kind == 'e' and e.expires ~= NEVER_TEXT then
          p.unawaited[#p.unawaited + 1] = due_name(kind, member)
        end
        discard(p, member, e)
        count = count + 1
      end
    end
    share = room > 0 and share - fit or 0
    first = scores[fit] + 1
  end
  if share == 0 then
    onwards = string.format('%.0f', math.max(first, from))
    break
  end
end
finish(p, string.format('%d %s', count, onwards))
return { p.more, count, onwards }
