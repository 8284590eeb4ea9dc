-- Writes what a publish has collected for the subscriptions, and announces interest to their receivers with credit.
-- @use marks_text
-- @use announce_due announce_moves call_receivers flush serve_credit update_session_turns inside
local function finish_targets(subscriptions)
  for i = 1, #subscriptions do
    local target = subscriptions[i]
    flush(target)
    if next(target.touched) then
      update_session_turns(target)
    end
    if target.credit ~= '' and not target.leaps then
      serve_credit(target)
    end
    if target.wide and target.moved then
      call_receivers(target)
    end
    announce_due(target)
    if not target.calling and (target.forwards or target.forwards_dead) then
      announce_moves(target)
    end
    if target.marked then
      target.changed.marks = marks_text(target)
    end
    for name, value in pairs(target.changed) do
      redis.call('HSET', target.state, name, value)
    end
  end
end
