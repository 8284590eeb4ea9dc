-- Chooses who calls when something is due. A receiver that has just granted credit may become the keeper of the due
-- time, or the deputy, who calls five seconds later; the reply tells it. They are told if the time comes forward. If
-- there is no keeper, a receiver is asked to become it, at most once a second. A keeper calls at least once a lock
-- duration, so it need not be told of locks that are given later. A receiver of another client takes the place of a
-- deputy of the keeper's client, because a client that dies takes all of its receivers with it.
--
-- The clients of the keeper and of the deputy may die or stand still at the same time. So the reply tells each other
-- receiver to call ten seconds after what is due now, and not before a minute has passed, because others mostly call
-- before. Each receiver calls every two minutes anyway, and the holder of a session calls to renew its lock.
--
-- The due time is a lower bound: what is due may have gone since. On a topic, scheduled messages wait for a client that
-- publishes them, and not for a receiver of dead letters.
-- @use open_credit
-- @use open_grants push_to words_of
local function keep_due_time(p)
  local c = open_credit(p)
  local known = math.min(p.head, p.next_lock - p.offset, p.topic and math.huge or p.next_due)
  local due = math.max(p.now, math.min(known, p.lock and p.now + p.lock or math.huge))
  if not p.granting and c.keeper ~= '' and c.keeper_till > p.now and c.keeper_at + 1000 >= p.now and c.keeper_at <= due
    and (c.deputy == '' or c.deputy_at <= due + 5000) then
    return
  end

  -- Return whether a keeper or a deputy is not late, and its grant is open.
  local function keeps(key, at, till)
    return key ~= '' and till > p.now and at + 1000 >= p.now
  end

  -- Return the client of a receiver: the end of the name of its channel.
  local function client_of(w)
    return string.match(w.channel, '[^:]*$')
  end

  -- Tell a receiver, unless it was told already. Return when it was told, or 0 if it does not listen.
  local function told_at(key)
    words_of(p, { key })
    local w = c.words[key]
    return w and (w.told > 0 or push_to(p, w)) and w.told or 0
  end

  local keeper, deputy = keeps(c.keeper, c.keeper_at, c.keeper_till), keeps(c.deputy, c.deputy_at, c.deputy_till)
  for _, g in ipairs(p.granting or {}) do
    local w = g.w
    if w and (not g.asked or w.open_until <= p.now) then
      c.asked = 0 -- it was perhaps the one that was asked last, and another one must be
      keeper, deputy = keeper and c.keeper ~= w.key, deputy and c.deputy ~= w.key
    elseif w and (not keeper or c.keeper == w.key) then
      keeper, deputy = true, deputy and c.deputy ~= w.key
      c.keeper, c.keeper_at, c.keeper_till, c.asked, g.due = w.key, due, w.open_until, 0, due - p.now
      g.flags = g.flags .. 'k'
      c.keeper_client = client_of(w)
    elseif w and (not deputy or c.deputy == w.key or c.deputy_client == c.keeper_client and client_of(w) ~= c.keeper_client) then
      deputy, c.deputy, c.deputy_at, c.deputy_till, g.due = true, w.key, due + 5000, w.open_until, due + 5000 - p.now
      c.deputy_client, g.flags = client_of(w), g.flags .. 'k'
    elseif w and known < p.now + 110000 and not w.session then
      g.due = math.max(known, p.now + 50000) + 10000 - p.now
    end
  end

  if keeper and c.keeper_at > due then
    c.keeper_at = told_at(c.keeper)
    keeper = keeps(c.keeper, c.keeper_at, c.keeper_till)
  end
  if deputy and c.deputy_at > due + 5000 then
    c.deputy_at = told_at(c.deputy)
    deputy = keeps(c.deputy, c.deputy_at, c.deputy_till)
  end
  c.keeper, c.deputy = keeper and c.keeper or '', deputy and c.deputy or ''
  if keeper or math.abs(p.now - c.asked) <= 1000 then
    return
  elseif deputy then
    c.asked = told_at(c.deputy)
  elseif c.open or next(c.dirty) then
    for source = 1, 5 do
      local next_grant = open_grants(p, source)
      local w = next_grant(1)
      while w do
        if told_at(w.key) > 0 then
          c.asked = p.now
          return
        end
        w = next_grant(32)
      end
    end
  end
end
