-- Opens a call: reads the partition's settings and clocks, and refuses a call that must not run. It writes nothing. It
-- returns a table that collects the changes of the call; `flush` and `finish` write them. The table also has every
-- setting of the partition, under its name: a field that it lacks is read from the table of settings.
-- engine/_state.py lists the fields of `state` and the words of the settings; the loader puts them into this text at
-- STATE and WORDS. The loader also writes the call of `begin` into each operation, with the number of its arguments and
-- with its facts. All participants of a transaction have the time of the first one, which `begin` has returned as
-- `first`.
--
-- Every call runs this function, so it converts texts to numbers by `+ 0`, which takes less than half the time of
-- `tonumber`.
--
-- Refusals: GONE (the entity does not exist here, has another incarnation, or is being deleted), LAYOUT (another
--   release wrote the data), BADCALL (malformed), REPEATED (the call is older than the lane's last one), LANE (the lane
--   is not known here), STALE (the caller's settings are older than the partition's), CONFIG (the caller's settings are
--   newer)
-- @use never parse_marks parse_settings refuse whole_number
local function begin(keys, argv, name, count, variadic, upkeep, laneless, first)
  local s = redis.call('HMGET', keys[1], unpack(STATE))
  if not s[STATE.layout] then
    return nil, refuse('GONE', 'partition')
  end
  if s[STATE.layout] ~= '2' or not s[STATE.marks] then -- data from before the first release may lack a field
    return nil, refuse('LAYOUT', s[STATE.layout])
  end
  local set = parse_settings[s[STATE.settings]]
  if not set or set.incarnation ~= argv[2] or set.status == 'Deleting'
    or set.shared and redis.call('EXISTS', keys[9]) == 0 then
    return nil, refuse('GONE', 'partition')
  end

  if #argv < count or #argv > count and not variadic then
    return nil, refuse('BADCALL', 'number of arguments')
  end

  local now, now_text
  if set.clock == 'test' then
    now = whole_number(argv[6], 0, NEVER - 1)
    if not now then
      return nil, refuse('BADCALL', 'this partition was made with a test clock: the call must tell the time')
    end
  elseif argv[6] ~= '' then
    return nil, refuse('BADCALL', 'this partition uses the clock of the server: the call must not tell the time')
  elseif first then
    now, now_text = first.now, first.now_text
  else
    local time = redis.call('TIME')
    now_text = time[1] .. string.sub('00000' .. time[2], -6, -4)
    now = now_text + 0
  end

  local lane, known, result = argv[4], false, nil
  local number = whole_number(argv[5], lane == '' and 0 or 1, 999999999999999)
  if not number then
    return nil, refuse('BADCALL', 'number')
  end
  if lane ~= '' then
    local last = redis.call('HGET', keys[8], lane)
    if last then
      known = true
      local before = string.match(last, '^%d+') + 0
      if number == before then
        local call, said = string.match(last, '^%d+ %d+ (%S+) (.*)$')
        if call ~= name then
          return nil, refuse('BADCALL', 'the number belongs to another call')
        end
        result = said
      elseif number < before then
        return nil, refuse('REPEATED', string.format('%.0f', before))
      end
    elseif number > 1 then
      return nil, refuse('LANE', lane)
    end
  end

  local version = set.version
  if argv[3] ~= version and not result then
    local theirs = whole_number(argv[3], 1, 999999999999999)
    if not theirs then
      return nil, refuse('BADCALL', 'version')
    elseif theirs < tonumber(version) then
      return nil, refuse('STALE', version)
    elseif theirs > tonumber(version) then
      return nil, refuse('CONFIG', version)
    end
  end
  if laneless and lane ~= '' then
    return nil, refuse('BADCALL', 'lane')
  end

  -- Locks use a logical clock of the partition that never goes back. After a change of the server process this clock
  -- continues from its last known time, or from one lock duration before the present time if that is later. So a lock
  -- lasts at most one lock duration longer, whatever the clock of the new server shows.
  local m = parse_marks[s[STATE.marks]]
  local run_id, lock, clk, offset = s[STATE.run_id], set.lock, s[STATE.clk] + 0, m.offset
  local logical = now + offset
  local epoch = argv[1] ~= '?' and run_id ~= '?' and run_id ~= argv[1]
  if epoch then
    logical = math.max(clk, logical - lock)
  elseif logical < clk then
    logical = clk
  end

  local p = setmetatable({
    state = keys[1], order = keys[2], entries = keys[3], leases = keys[4], locks = keys[5], due = keys[6], dedup = keys[7],
    ops = keys[8], store = keys[9], refs = keys[10], keys = keys,
    words = keys[33], grants = keys[34], kept = keys[35], credit = s[STATE.credit], run = argv[1],
    now = now, now_text = now_text or string.format('%013.0f', now),
    logical = logical, offset = logical - now, old_offset = offset, epoch = epoch,
    run_id = argv[1] ~= '?' and argv[1] or run_id, old_run_id = run_id,
    name = name, upkeep = upkeep, lane = lane, number = argv[5], new_lane = lane ~= '' and not known, repeated = result,
    dead_seq = m.dead_seq, biggest = m.biggest, head = m.head, horizon = m.horizon, next_lock = m.next_lock,
    next_due = m.next_due, announced = m.announced, granted = s[STATE.granted] + 0, used = s[STATE.used] + 0,
    calling = s[STATE.calling] == '1',
    index = set.sessions and keys[27] or nil, turns = keys[28], states = keys[29],
    lasting = keys[30], once = keys[31], noted = set.audited and {} or nil,
    index_added = set.sessions and {}, index_removed = set.sessions and {}, touched = set.sessions and {},
    changed = {}, placed = {}, taken = {}, entered = {}, forgotten = {}, awaited = {}, unawaited = {},
    bytes = 0, more = 0,
  }, set)
  return p
end
