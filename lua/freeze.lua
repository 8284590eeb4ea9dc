#!lua flags=allow-oom
-- Freezes messages that wait to be moved to a partition in another slot: they are the next batch for this destination.
-- Until the batch is settled, no caller can receive them, and they do not expire. Messages that are not there as named
-- are left out. For each destination at most one batch is outstanding. If one is outstanding already, the script
-- changes nothing and returns that batch. So the call may be repeated. A batch with a purpose calls for a mover, which
-- completes the batch if this client dies.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    destination the id of the entity, a colon, and the number of the partition
-- ARGV[8]    holder      the incarnation of the destination
-- ARGV[9]    birth       of this partition. A partition that was made again gives the same names to other messages
-- ARGV[10]   purpose     a text of the mover, which every mover of this batch gets. It says what the destination gets
-- ARGV[11...] messages    for each message its name and its changed properties
--
-- Result: { more, the number of the batch as text, the incarnation of its destination, the names of its messages as
--   runs, its purpose }. The number is 0 if there is no batch, because no message is there as named, because the
--   partition has another birth, or because 64 batches are outstanding
-- Refusals: call, DUE (due work had to be done first)
-- Facts: repeatable, laneless
-- @use advance finish freeze_messages has_overdue movable_messages outstanding_batch parse_destination refuse
-- @use refuse_while_due split_words
local destination, id = parse_destination(ARGV[7])
local found = movable_messages(p, ARGV, 11)
if not destination or not found or not string.find(ARGV[8], '^[%w_-]+$') or #ARGV[8] > 64 or #ARGV[10] > 131072 then
  return refuse('BADCALL', 'freeze')
end
if redis.call('HGET', p.state, 'birth') ~= ARGV[9] then
  return { 0, '0', '', '', '' }
end
local number, incarnation, runs, purpose = outstanding_batch(p, destination)
if number then
  -- Write it again, so that a WAIT after this script has a write that replicas can confirm.
  redis.call('HSET', p.lasting, 'b:' .. destination, table.concat({ number, incarnation, runs, purpose }, ' '))
  return { 0, number, incarnation, runs, purpose }
end

if has_overdue(p) then -- what is due may change some of the messages
  advance(p, 100)
  if p.more == 1 then
    return refuse_while_due(p)
  end
  found = movable_messages(p, ARGV, 11)
end
local batches, told = unpack(redis.call('HMGET', p.lasting, 'batches', 'to'))
if #found.names == 0 or #split_words(batches or '') >= 64 then
  finish(p, '')
  return { p.more, '0', '', '', '' }
end
number, runs = freeze_messages(p, found, destination, id, ARGV[8], ARGV[10], batches, told)
p.awaits_mover = ARGV[10] ~= '' -- nothing else calls for a mover if the client of a redrive dies now
finish(p, '')
return { p.more, number, ARGV[8], runs, ARGV[10] }
