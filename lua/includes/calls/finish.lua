-- Ends a call. Writes the remaining changes, the clocks, and the call's result under its lane, so that a repetition
-- gets the same answer. Gives messages that became available to receivers with credit, and announces when something
-- will be due. If the call is a use of the partition, it writes the time of the last use, at most once a minute. A use
-- of a subscription is also a use of its topic.
-- @use add_pair announce_due flush marks_text serve_credit
-- @use announce_moves call_receivers update_session_turns write_settlements inside
local function finish(p, result)
  flush(p)
  if p.index and next(p.touched) then
    update_session_turns(p)
  end
  if p.credit ~= '' or p.granting then
    serve_credit(p)
  end
  if p.wide and (p.moved or p.granting) then
    call_receivers(p)
  end
  if p.noted and (p.given or #p.noted > 0) then
    write_settlements(p)
  end
  announce_due(p)
  if not p.calling and (p.forwards or p.forwards_dead or p.awaits_mover) then
    announce_moves(p)
  end
  if p.now - p.used >= 60000 and not p.upkeep then
    p.changed.used = p.now
    if p.shared then
      redis.call('HSET', p.store, 'used', p.now)
    end
  end
  if p.marked or p.offset ~= p.old_offset then
    p.changed.marks = marks_text(p)
  end
  if p.run_id ~= p.old_run_id then
    p.changed.run_id = p.run_id
  end
  local fields = { 'clk', p.offset == 0 and p.now_text or p.logical }
  for name, value in pairs(p.changed) do
    add_pair(fields, name, value)
  end
  redis.call('HSET', p.state, unpack(fields))
  if p.lane ~= '' then
    redis.call('HSET', p.ops, p.lane, p.number .. ' ' .. p.now_text .. ' ' .. p.name .. ' ' .. result)
    if p.new_lane then
      -- Delete lanes that were not used for a quarter of an hour, a few at a time, whenever a new lane begins.
      local some = redis.call('HRANDFIELD', p.ops, 10, 'WITHVALUES')
      for i = 1, #some, 2 do
        if tonumber(string.match(some[i + 1], '^%d+ (%d+)')) < p.now - 900000 then
          redis.call('HDEL', p.ops, some[i])
        end
      end
    end
  end
end
