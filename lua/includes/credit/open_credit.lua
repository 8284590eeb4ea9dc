-- Returns what a call knows of the credit of a partition. The first call of an epoch ends all grants. The first fields
-- of the table come from the field `credit` of the partition, most of them by way of its metatable; the others belong
-- to the call:
--   turn       the number of gifts so far; a word has the turn of its last gift
--   epochs     the number of epochs so far; a word of an earlier epoch is closed
--   ends       how often all credit was ended by newer settings; a word with a smaller number has no credit
--   open       whether there are open grants in the key `grants`
--   rest       whether the last call has left ready messages beside open grants
--   untold     whether there are receivers that were not told of an end yet
--   keeper, keeper_at, keeper_till   the word that keeps the due time, when it will call, and when its grant ends
--   deputy, deputy_at, deputy_till   the same for the deputy
--   keeper_client, deputy_client     the clients that the latest two belong to
--   asked      when a receiver was last asked to become the keeper
--   words      the words that the call has read, by their key; false in place of one that is not there
--   dirty      the words that the call has changed
--   pushes, room   how many pushes, and how many of their bytes, the call may still make
--   given, left   how many messages the replies have, and how many bytes they may still have
--   ended      how many holders the call has told that their session is not theirs any more
-- @use parse_credit
local function open_credit(p)
  local c = p.credits
  if c then
    return c
  end
  -- What changes with each gift or grant stands in front, so that the rest is often a text that is known.
  local turn, keeper_till, deputy_till, rest = string.match(p.credit, '^(%d+) (%d+) (%d+) (.*)$')
  c = setmetatable({
    turn = (turn or 0) + 0, keeper_till = (keeper_till or 0) + 0, deputy_till = (deputy_till or 0) + 0,
    words = {}, dirty = {}, pushes = 16, room = 65536, given = 0, left = 2000000, ended = 0,
  }, parse_credit[rest or ''])
  if c.known and p.old_run_id ~= '?' and p.run_id ~= p.old_run_id then
    c.epochs, c.open, c.rest, c.untold, c.keeper, c.deputy = c.epochs + 1, false, false, false, '', ''
    redis.call('UNLINK', p.grants)
  end
  p.credits = c
  return c
end
