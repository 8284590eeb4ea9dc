-- Removes the events of messages that would expire: `found` is the first result of movable_messages.
-- @use due_name
local function stop_expiry(p, found)
  if redis.call('ZCARD', p.due) > 0 then
    for i = 1, #found.names do
      if found.main[i] then
        p.unawaited[#p.unawaited + 1] = due_name('e', found.names[i])
      end
    end
  end
end
