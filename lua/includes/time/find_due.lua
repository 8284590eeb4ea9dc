-- Begins a pass over due work (see compute_due): reads the events whose time has come. Returns the table of the pass.
-- @use band due_message epoch_leap levels read_many
-- @use pinned_up_to inside
local function find_due(p, share, turning)
  local o = {
    moved = {}, by = {}, dead = {}, activated = {}, leases = {}, unlocked = {}, unblocked = {}, turns = {},
    horizon = p.horizon, head = p.head, more = 0, leap = p.epoch and EPOCH_LEAP or 0,
    share = share, turning = turning, room = p.room or 2097152, alike = {},
    reach = {}, locks = {}, at_lock = 1, due = {}, members = {}, entries = {}, at_due = 1, made = {}, at_made = 1, levels = {},
  }
  if p.next_lock <= p.logical then
    o.locks = redis.call('ZRANGE', p.locks, '-inf', p.logical, 'BYSCORE', 'LIMIT', 0, share + 1, 'WITHSCORES')
  end
  if p.next_due <= p.now and not p.topic then -- what is scheduled on a topic waits for a client that knows the rules
    o.due = redis.call('ZRANGE', p.due, '-inf', p.now, 'BYSCORE', 'LIMIT', 0, share + 1, 'WITHSCORES')
    for i = 1, #o.due, 2 do
      o.members[#o.members + 1] = string.byte(o.due[i]) == 98 and '-' or due_message(o.due[i])
    end
    o.entries = read_many('HMGET', p.entries, o.members)
  end
  -- Messages whose expiry is not indexed: in each level, the first message expires first.
  local above = p.head <= p.now and p.reserved and pinned_up_to(p) + 1 or 0
  for level = 0, p.head <= p.now and LEVELS - 1 or -1 do
    o.levels[#o.levels + 1] = { from = level * BAND + above, to = (level + 1) * BAND - 1, seen = 0, members = {}, at = 1 }
  end
  return o
end
