-- Opens a call: reads the partition's settings and clocks, and refuses a call that must not run. It writes nothing. It
-- returns a table that collects the changes of the call; `flush` and `finish` write them. The table also has every
-- setting of the partition, under the name of its field. engine/_state.py lists the fields of `state`; the loader puts
-- them into this text at STATE. All participants of a transaction have the time of the first one, which `begin` has
-- returned as `first`.
--
-- Refusals: GONE (the entity does not exist here, has another incarnation, or is being deleted), LAYOUT (another
--   release wrote the data), BADCALL (malformed), REPEATED (the call is older than the lane's last one), LANE (the lane
--   is not known here), STALE (the caller's settings are older than the partition's), CONFIG (the caller's settings are
--   newer)
-- @use never refuse whole_number
local function begin(keys, argv, name, count, variadic, first)
  local s = redis.call('HMGET', keys[1], unpack(STATE))
  if not s[STATE.layout] then
    return nil, refuse('GONE', 'partition')
  end
  if s[STATE.layout] ~= '1' then
    return nil, refuse('LAYOUT', s[STATE.layout])
  end
  local text = s[STATE.settings]
  local w = { WORDS.match(text) }
  if w[WORDS.incarnation] ~= argv[2] or w[WORDS.status] == 'Deleting'
    or w[WORDS.shared] == '1' and redis.call('EXISTS', keys[10]) == 0 then
    return nil, refuse('GONE', 'partition')
  end

  if #argv < count or #argv > count and not variadic then
    return nil, refuse('BADCALL', 'number of arguments')
  end

  local now
  if w[WORDS.clock] == 'test' then
    now = whole_number(argv[6], 0, NEVER - 1)
    if not now then
      return nil, refuse('BADCALL', 'this partition was made with a test clock: the call must tell the time')
    end
  elseif argv[6] ~= '' then
    return nil, refuse('BADCALL', 'this partition uses the clock of the server: the call must not tell the time')
  elseif first then
    now = first.now
  else
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
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
      local before, _, call, said = string.match(last, '^(%d+) (%d+) (%S+) (.*)$')
      before = tonumber(before)
      if number == before then
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

  local version = w[WORDS.version]
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

  -- Locks use a logical clock of the partition that never goes back. After a change of the server process this clock
  -- continues from its last known time, or from one lock duration before the present time if that is later. So a lock
  -- lasts at most one lock duration longer, whatever the clock of the new server shows.
  local run_id, lock, clk = s[STATE.run_id], tonumber(w[WORDS.lock]), tonumber(s[STATE.clk])
  local logical = now + tonumber(s[STATE.offset])
  local epoch = argv[1] ~= '?' and run_id ~= '?' and run_id ~= argv[1]
  if epoch then
    logical = math.max(clk, logical - lock)
  elseif logical < clk then
    logical = clk
  end

  local sessions = w[WORDS.sessions] == '1'
  return {
    state = keys[1], order = keys[2], entries = keys[3], leases = keys[4], locks = keys[5], due = keys[6], dedup = keys[7],
    ops = keys[8], waiters = keys[9], store = keys[10], refs = keys[11], keys = keys,
    now = now, logical = logical, offset = logical - now, old_offset = tonumber(s[STATE.offset]), epoch = epoch,
    run_id = argv[1] ~= '?' and argv[1] or run_id, old_run_id = run_id,
    name = name, lane = lane, number = argv[5], new_lane = lane ~= '' and not known, repeated = result,
    WORDS.settings(w),
    dead_seq = tonumber(s[STATE.dead_seq]), head = tonumber(s[STATE.head]), horizon = tonumber(s[STATE.horizon]),
    next_lock = tonumber(s[STATE.next_lock]), next_due = tonumber(s[STATE.next_due]), waiting = s[STATE.waiting] == '1',
    biggest = tonumber(s[STATE.biggest]), announced = tonumber(s[STATE.announced]),
    granted = tonumber(s[STATE.granted]), used = tonumber(s[STATE.used]), calling = s[STATE.calling] == '1',
    index = sessions and keys[28] or nil, turns = keys[29], states = keys[30],
    lasting = keys[31], once = keys[32],
    index_added = {}, index_removed = {}, touched = {},
    changed = {}, placed = {}, taken = {}, entered = {}, forgotten = {}, awaited = {}, unawaited = {},
    dropped = {}, dropped_sizes = {}, bytes = 0, more = 0, sooner = math.huge,
  }
end
