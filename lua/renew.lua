#!lua flags=allow-oom
-- Renews the locks of messages for the full lock duration. If a group names all messages that its lease still holds,
-- that lease is extended. If a group names only some of these messages, each of them gets a lease of its own, and the
-- lease that they share is not extended. The token of the messages stays the same. Messages of a session are renewed
-- with the lock on the session, which is extended.
--
-- A group that names no message extends its lease, whatever the lease still holds: messages or a session. Its token may
-- be the key of a single message's lease: the token, and the name of the message.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      each group is the token of a lease, a number of messages, and the names of these messages
--
-- Result: { more, lock duration, the names of messages whose lock was lost, the names of messages that have a lease of
--           their own, the tokens of leases that have ended, of groups that name no message }
-- Refusals: call
-- Facts: use
-- @use advance answer_repetition apply_renew finish lock_groups refuse renew_lease split_words still_held
if p.repeated then
  local till, lost, apart, ended = string.match(p.repeated, '^(%d+)|([^|]*)|([^|]*)|(.*)$')
  local left = math.max(0, till - p.logical)
  return answer_repetition(p, { 0, left, split_words(lost), split_words(apart), split_words(ended) })
end
local list = lock_groups(ARGV, 7, 1, true)
if not list then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local seen, lost, ended, held = {}, {}, {}, {}
for g = 1, #list do
  local mine = still_held(p, list[g], seen, lost)
  local lease = mine.lease
  if #list[g].members > 0 then
    held[#held + 1] = mine
  elseif tonumber(lease.till) > p.logical and (lease.session or lease.left > 0) then
    renew_lease(p, mine.token, lease)
  else
    ended[#ended + 1] = mine.token
  end
end
local apart = apply_renew(p, held)
local till = string.format('%.0f', p.logical + p.lock)
finish(p, table.concat({ till, table.concat(lost, ' '), table.concat(apart, ' '), table.concat(ended, ' ') }, '|'))
return { p.more, p.lock, lost, apart, ended }
