-- Moves messages of the main side whose records are lost to the dead-letter queue, so that the messages behind them can
-- be received. `entries` has their entries, where they have one. If `session` names their session, the index of that
-- session lists them under `letter`. A call that did not know the session may have removed the message before; then
-- only the index still has it.
-- @use bury due_name entry_or_default index_remove lost_record inside
-- @use add_pair
local function set_aside(p, members, entries, session, letter)
  for i = 1, #members do
    local member = members[i]
    if session then
      index_remove(p, session, letter, tonumber(member))
      p.touched[session] = p.touched[session] or true
    end
    if not session or redis.call('ZSCORE', p.order, member) then
      add_pair(p.unawaited, due_name('e', member), due_name('d', member))
      local e = entry_or_default(entries[i], LOST_RECORD)
      bury(p, member, e, 'R')
    end
  end
end
