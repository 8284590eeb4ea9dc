#!lua flags=allow-oom
-- Deletes scheduled messages before they are enqueued. If one of the named messages is not scheduled, or is no longer
-- scheduled, or is being spread, the script deletes none of them.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] names       of the messages
--
-- Result: { more, the names of messages that are not scheduled here }
-- Refusals: call, DUE (some messages are not scheduled, but due work had to be done first)
-- Facts: use
-- @use advance answer_repetition drop_record due_name finish index_remove message_names read_many read_record
-- @use record_key record_session refuse refuse_while_due scheduled split_words
if p.repeated then
  return answer_repetition(p, { 0, split_words(p.repeated) })
end
local members = message_names(ARGV, 7)
if not members then
  return refuse('BADCALL', 'names')
end

advance(p, 100)
local scores, missing = read_many('ZMSCORE', p.order, members), {}
for i = 1, #members do
  local number = tonumber(members[i])
  if not number or not scores[i] or tonumber(scores[i]) ~= SCHEDULED + number
    or p.topic and redis.call('HEXISTS', p.entries, '>' .. members[i]) == 1 then
    missing[#missing + 1] = members[i]
  end
end
if p.more == 1 then
  -- A message whose time has come counts as no longer scheduled, even if this call did not activate it.
  local names = {}
  for i = 1, #members do
    names[i] = due_name('a', members[i])
  end
  local dues = read_many('ZMSCORE', p.due, names)
  for i = 1, #members do
    if #missing > 0 or tonumber(dues[i]) <= p.now then
      return refuse_while_due(p)
    end
  end
end
if #missing == 0 then
  for i = 1, #members do
    local member = members[i]
    p.taken[#p.taken + 1] = member
    p.unawaited[#p.unawaited + 1] = due_name('a', member)
    local key = record_key(p.keys, tonumber(member))
    if p.index then
      index_remove(p, record_session(read_record(p.keys, member)) or '', 's', tonumber(member)) -- it may be lost
    end
    drop_record(p, member, redis.call('HSTRLEN', key, member), 0)
  end
end
finish(p, table.concat(missing, ' '))
return { p.more, missing }
