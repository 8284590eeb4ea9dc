-- Computes what has become due in the partition since the last call, without writing anything. It handles the due
-- events in the order of their times: at most `share` events, and no more after it has read 2 MB of records, or
-- `p.room` bytes. A message that is found at the beginning of a level, or is activated, becomes a dead letter if its
-- record is lost. The kinds of events are: a lock ends, a scheduled message is activated, the block of a session ends,
-- a delay ends, a message expires. Events of one instant are handled in this order of kinds, and within a kind in the
-- order of tokens, numbers or names. Each event has its effect at its own time, not at the time of the call. If an
-- event makes another event due, the same pass handles that other event too. `apply_due` writes the result; `count` and
-- `peek` only show it.
--
-- All events have names in `due`, except the ends of locks and the expiries that are not indexed (see index_expiry).
-- Messages whose expiry is not indexed are found at the beginning of each level of priority. If the partition is
-- reserved, a level begins after the pinned messages, which do not expire and have no events.
--
-- Result, a table:
--   moved      each message that an event has moved, in order: its member, its former state (`was`: the letter of its
--              event, or L), its new state (`is`: ready, deferred, dead, gone), its entry `e`, its side, number and
--              session. A message that was scheduled has a new number and `name`, and its `head` and stored `record`.
--              `indexed` says whether its expiry is indexed. `index` is the name of its event in `due`, if it had one
--   by         a table from the member of each moved message to the message's item in `moved`
--   dead       the moved messages that are dead letters now, in the order in which they became dead letters
--   activated  the moved messages that were scheduled, in order
--   leases     the token of each changed lease, and the rest of the lease as text, or nothing if the lease has ended
--   unlocked   sessions whose locks have ended, and the tokens of these locks
--   unblocked  sessions whose block has ended
--   turns      a table from the name of each changed session to what the session does, and since when
--   horizon, head, seq: the values of these fields after the events; seq only if a message was activated
--   leap       how far the numbers jump ahead after a failover, which may have lost messages that had numbers
--   more       1 if due work was left over, else 0
--
-- The fragments that handle single events share the table. Besides the result, it has what the pass has read and how
-- far it is: the tokens of `locks`, the events in `due`, the expiries that the pass itself has `made`, and the `levels`
-- of priority; and the `share` and the `room` that are left.
-- @use expire_active find_due happen lapse_lease never next_event note_expired
local function compute_due(p, share, turning)
  local o = find_due(p, share, turning)
  while true do
    local kind, time, level = next_event(p, o)
    if not kind then
      break
    end
    if o.share <= 0 or o.room <= 0 then
      o.more = 1
      break
    end
    local spent, unfinished = 1, nil
    if kind == 'lock' then
      spent, unfinished = lapse_lease(p, o, o.locks[o.at_lock], time)
      o.at_lock = o.at_lock + 2
      if unfinished then
        o.more = 1
        break
      end
    elseif kind == 'made' then
      local m = o.made[o.at_made].m
      o.at_made = o.at_made + 1
      o.room = o.room - m.e.size
      note_expired(p, o, m, time)
    elseif kind == 'level' then
      expire_active(p, o, level.told, level.e, level.record, time)
    else
      happen(p, o, time)
    end
    o.share = o.share - spent
  end

  -- Compute a lower bound of the next expiry among the messages whose expiry is not indexed.
  if o.more == 0 and #o.levels > 0 then
    o.head = NEVER
    for i = 1, #o.levels do
      o.head = math.min(o.head, o.levels[i].fresh or NEVER)
    end
  end
  for i = 1, #o.activated do
    local m = o.activated[i]
    if m.is == 'ready' and not m.indexed then
      o.head = math.min(o.head, tonumber(m.e.expires))
    end
  end
  return o
end
