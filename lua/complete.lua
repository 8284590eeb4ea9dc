#!lua flags=allow-oom
-- Completes locked messages: they are deleted for good.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and the names of these messages
--
-- Result: { more, the names of messages whose lock was lost }
-- Refusals: call
-- @use advance answer_repetition begin delete_records finish index_remove lock_groups refuse release_from_lease
-- @use split_words still_held write_many
local p, refusal = begin(KEYS, ARGV, 'complete', 6, true)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { 0, split_words(p.repeated) })
end
local list = lock_groups(ARGV, 7, 1)
if not list then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local seen, lost = {}, {}
for g = 1, #list do
  local mine = still_held(p, list[g], seen, lost)
  local names, entries, stored = mine.names, mine.entries, mine.names
  local freed, last, size, record, changes, sizes = 0, nil, nil, nil, nil, {}
  for i = 1, #names do
    local text = entries[i]
    if text ~= last then -- messages of one size that were given out together have equal entries: parse one
      last = text
      size, record, changes = string.match(text, '^(%d+);(%d*);()', 34)
      size, changes = tonumber(size), #text - changes + 1
    end
    if record ~= '' and stored == names then
      stored = { unpack(names, 1, i - 1) }
    end
    if stored ~= names then
      stored[i] = record == '' and names[i] or record
    end
    freed, sizes[i] = freed + size, size
    if mine.session then
      index_remove(p, mine.session, 'h', tonumber(names[i]))
    end
    p.bytes = p.bytes - changes
  end
  if #names > 0 then
    write_many('ZREM', p.order, names)
    write_many('HDEL', p.entries, names)
    delete_records(p, stored, p.shared and sizes or freed, stored == names and mine.numbers or nil)
  end
  release_from_lease(p, mine, #names)
end
finish(p, table.concat(lost, ' '))
return { p.more, lost }
