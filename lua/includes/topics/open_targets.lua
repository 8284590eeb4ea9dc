-- Returns the subscriptions that a call publishes to, with the fields that publishing needs, and the place of the first
-- key after theirs; or nil and a refusal. Their keys begin at `at`. TARGET is a list of fields in engine/_state.py. In
-- a transaction, `open` has the table of changes of each partition that is open, under its key `state`. A subscription
-- that is open already is not opened again.
--
-- Refusals: TARGET (a subscription does not exist here, or is being deleted; the detail is its place), BADCALL
-- @use parse_marks parse_settings refuse split_words
local function open_targets(p, keys, incarnations, at, open)
  -- Publishing only adds to a subscription. So all lists of things to remove share the empty table `none`.
  local names, list, none = split_words(incarnations), {}, {}
  for i = 1, #names do
    local incarnation, sessions = string.match(names[i], '^([^+]+)(%+?)$')
    if not incarnation or not keys[at + (sessions == '+' and 8 or 5)] then
      return nil, refuse('BADCALL', 'targets')
    end
    local s = redis.call('HMGET', keys[at], unpack(TARGET))
    local set = s[TARGET.layout] == '2' and s[TARGET.marks] and parse_settings[s[TARGET.settings]]
    if not set or set.incarnation ~= incarnation or set.status == 'Deleting' then
      return nil, refuse('TARGET', string.format('%d', i))
    end
    if list[keys[at]] or set.sessions ~= (sessions == '+') then
      return nil, refuse('BADCALL', 'targets')
    end
    list[keys[at]] = true
    local m = parse_marks[s[TARGET.marks]]
    local target = open and open[keys[at]] or {
      state = keys[at], order = keys[at + 1], entries = keys[at + 2], due = keys[at + 3],
      words = keys[at + 4], grants = keys[at + 5], credit = s[TARGET.credit], run = p.run, now = p.now,
      ttl = set.ttl, head = m.head, horizon = m.horizon, next_due = m.next_due, biggest = m.biggest, dead_seq = m.dead_seq,
      announced = m.announced, next_lock = m.next_lock, offset = m.offset, calling = s[TARGET.calling] == '1',
      forwards = set.forwards, forwards_dead = set.forwards_dead, reserved = set.reserved, wide = set.wide,
      leaps = p.run_id ~= '?' and s[TARGET.run_id] ~= '?' and s[TARGET.run_id] ~= p.run_id,
      changed = {}, placed = {}, entered = {}, awaited = {}, taken = none, forgotten = none, unawaited = none,
      touched = none, bytes = 0,
    }
    list[i] = target
    if open then
      open[keys[at]] = target
    end
    at = at + 6
    if sessions == '+' and target.index then
      at = at + 3
    elseif sessions == '+' then
      target.index, target.turns, target.states = keys[at], keys[at + 1], keys[at + 2]
      target.touched, target.index_added, target.index_removed = {}, {}, none
      at = at + 3
    end
  end
  return list, at
end
