#!lua flags=allow-oom
-- Ends an outstanding batch of messages that were frozen: deletes the messages that are at their destination, and
-- returns the others to their places. A message that was deferred is deferred again, and a delay is over. A message
-- that was refused for good goes to the dead-letter queue. If it is a transfer, or if its batch has a purpose, because
-- a client has chosen it, it goes to the transfer dead-letter queue. A dead letter that was refused for good can be
-- received as before, but is not forwarded again. If the batch is not outstanding, the script changes nothing. So the
-- call may be repeated.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    destination the id of the entity, a colon, and the number of the partition
-- ARGV[8]    batch       its number
-- ARGV[9]    birth       of this partition. A partition that was made again gives the same numbers to other batches
-- ARGV[10]   verdict     taken: all messages are at their destination; back: none is; again: only the named messages
--   are; refused: none is, and the named messages are refused for good
-- ARGV[11...] messages   after again, names; after refused, for each message its name and its changed properties, which
--   contain the reason
--
-- Result: { more, 1 if the batch was outstanding, otherwise 0 }
-- Refusals: call
-- Facts: repeatable, laneless
-- @use add_pair advance bury delete_moved end_batch entry_or_default expire finish make_deferred make_ready
-- @use message_names names_of_runs never outstanding_batch parse_destination read_many read_records record_of
-- @use record_session refuse set_changes side_of sides whole_number
local destination, wanted, verdict = parse_destination(ARGV[7]), whole_number(ARGV[8], 1, 999999999999999), ARGV[10]
local listed, fates = {}, {}
for i = 11, verdict == 'again' and #ARGV or 10 do
  listed[#listed + 1], fates[ARGV[i]] = ARGV[i], true
end
for i = 11, verdict == 'refused' and #ARGV or 10, 2 do
  listed[#listed + 1], fates[ARGV[i]] = ARGV[i], ARGV[i + 1]
end
if not destination or not wanted or #listed > 0 and not message_names(listed, 1)
  or (verdict == 'taken' or verdict == 'back') and #ARGV > 10 or verdict == 'refused' and #ARGV % 2 == 1
  or verdict ~= 'taken' and verdict ~= 'back' and #listed == 0 then
  return refuse('BADCALL', 'settle_batch')
end
local number, _, runs, purpose = outstanding_batch(p, destination)
if tonumber(number) ~= wanted or redis.call('HGET', p.state, 'birth') ~= ARGV[9] then
  return { 0, 0 }
end

advance(p, 100)
local names = names_of_runs(runs)
local entries, numbers, at = read_many('HMGET', p.entries, names), {}, {}
for i = 1, #names do
  if verdict ~= 'taken' and fates[names[i]] ~= true then
    numbers[#numbers + 1], at[names[i]] = record_of(names[i], entries[i]), #numbers + 1
  end
end
local records = #numbers > 0 and read_records(p.keys, numbers) or {}
for i = 1, #names do
  local name, text = names[i], entries[i]
  local side, own = side_of(name)
  local record, changes = records[at[name]], fates[name]
  if not at[name] then
    delete_moved(p, name, text)
  elseif side.prefix ~= '' then
    local home = text and string.sub(text, 14, 14)
    local deferred = (home == 'f' or home == 'g') and side.deferred
    add_pair(p.placed, (deferred or changes and side.kept or side.ready) + own, name)
  else
    local e = entry_or_default(text, record)
    local transfer, deferred, expires = e.home == 'x', e.home == 'f' or e.home == 'g', tonumber(e.expires)
    e.session = p.index and not transfer and record_session(record) or nil
    if changes then
      set_changes(p, e, changes)
      bury(p, name, e, 'A', (transfer or purpose ~= '') and SIDES.t or SIDES.d)
    elseif transfer then
      add_pair(p.placed, side.transfer + own, name)
    elseif deferred then
      make_deferred(p, name, side, own, e)
    elseif expires <= p.now then
      expire(p, name, e)
    else
      make_ready(p, name, side, own, e, expires < NEVER)
      if e.session then
        p.touched[e.session] = 'ready'
      end
    end
  end
end
end_batch(p, destination, redis.call('HGET', p.lasting, 'batches') or '')
finish(p, '')
return { p.more, 1 }
