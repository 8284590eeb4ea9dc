-- The subscriptions that a call publishes to, opened as far as that needs; or a refusal.
--
-- Refusals: TARGET (one, by its place, is not here, or no longer), BADCALL
-- @use refuse words
local function targets(p, keys, incarnations)
  local names, list, at, none = words(incarnations), {}, 31, {} -- nothing is ever taken away: one empty list for all of that
  for i = 1, #names do
    local incarnation, sessions = string.match(names[i], '^([^+]+)(%+?)$')
    if not incarnation or not keys[at + (sessions == '+' and 7 or 4)] then
      return nil, refuse('BADCALL', 'targets')
    end
    local s = redis.call('HMGET', keys[at], 'layout', 'incarnation', 'status', 'ttl', 'head', 'horizon', 'next_due', 'waiting',
      'biggest', 'dead_seq', 'sessions', 'run_id', 'announced', 'next_lock', 'offset')
    if s[1] ~= '1' or s[2] ~= incarnation or s[3] == 'Deleting' then
      return nil, refuse('TARGET', string.format('%d', i))
    end
    if list[keys[at]] or (s[11] == '1') ~= (sessions == '+') then
      return nil, refuse('BADCALL', 'targets')
    end
    list[keys[at]] = true
    list[i] = {
      state = keys[at], order = keys[at + 1], entries = keys[at + 2], due = keys[at + 3], waiters = keys[at + 4], now = p.now,
      ttl = tonumber(s[4]), head = tonumber(s[5]), horizon = tonumber(s[6]), next_due = tonumber(s[7]), waiting = s[8] == '1',
      biggest = tonumber(s[9]), dead_seq = tonumber(s[10]), leaps = p.run_id ~= '?' and s[12] ~= '?' and s[12] ~= p.run_id,
      announced = tonumber(s[13]), next_lock = tonumber(s[14]), offset = tonumber(s[15]),
      changed = {}, placed = {}, entered = {}, awaited = {}, taken = none, forgotten = none, unawaited = none, dropped = none,
      touched = none, bytes = 0, sooner = math.huge,
    }
    at = at + 5
    if sessions == '+' then
      list[i].seats, list[i].turns, list[i].states = keys[at], keys[at + 1], keys[at + 2]
      list[i].touched, list[i].seated, list[i].unseated = {}, {}, none
      at = at + 3
    end
  end
  if at ~= #keys + 1 then
    return nil, refuse('BADCALL', 'targets')
  end
  return list
end
