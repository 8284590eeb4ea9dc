#!lua flags=allow-oom
-- Renews the locks of messages for the full lock duration. If a group names all messages that its lease still holds,
-- that lease is extended. If a group names only some of these messages, the named messages move to a lease under the
-- new token, and the locks of the other messages are not extended. Messages of a session are renewed with the lock on
-- the session, which is extended.
--
-- KEYS[1-33] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    token       the new token, chosen at random by the caller
-- ARGV[8...] groups      each group is the token of a lease, a number of messages, and the names of these messages
--
-- Result: { more, lock duration, the names of messages whose lock was lost, the names of messages under the new token }
-- Refusals: call
-- @use advance answer_repetition begin finish lock_groups name_runs parse_token refuse release_from_lease split_words
-- @use still_held write_lease
local p, refusal = begin(KEYS, ARGV, 'renew', 7, true)
if not p then
  return refusal
end
if p.repeated then
  local till, lost, moved = string.match(p.repeated, '^(%d+)|(.*)|(.*)$')
  return answer_repetition(p, { 0, math.max(0, till - p.logical), split_words(lost), split_words(moved) })
end
local token, list = parse_token(ARGV[7]), lock_groups(ARGV, 8, 1)
if not token or not list or redis.call('HEXISTS', p.leases, token) == 1 then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local seen, lost, moved = {}, {}, {}
for g = 1, #list do
  local mine = still_held(p, list[g], seen, lost)
  if #mine.names > 0 and (mine.session or #mine.names == mine.lease.left) then
    write_lease(p, mine.token, p.logical + p.lock, mine.lease.left, mine.lease.runs)
  else
    for i = 1, #mine.names do
      moved[#moved + 1] = mine.names[i]
      p.entered[#p.entered + 1] = mine.names[i]
      p.entered[#p.entered + 1] = token .. string.sub(mine.entries[i], 13)
    end
    release_from_lease(p, mine, #mine.names)
  end
end
if #moved > 0 then
  write_lease(p, token, p.logical + p.lock, #moved, name_runs(moved))
end
finish(p, string.format('%.0f|%s|%s', p.logical + p.lock, table.concat(lost, ' '), table.concat(moved, ' ')))
return { p.more, p.lock, lost, moved }
