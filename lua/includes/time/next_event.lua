-- Returns the source of the earliest event that a pass has not handled, its time, and the level of the message, if the
-- source is one; or nil. At one instant, only expiries come from several sources. So they are ordered by the number of
-- the expiring message, which is -1 for other events. Texts are not compared, because their order depends on the locale
-- of the server.
-- @use first_expiring
local function next_event(p, o)
  local kind, time, number, expiring
  if o.locks[o.at_lock] then
    kind, time, number = 'lock', math.min(p.now, tonumber(o.locks[o.at_lock + 1]) - p.offset), -1
  end
  local text, event = o.due[o.at_due], o.made[o.at_made]
  if text then
    local when = tonumber(o.due[o.at_due + 1])
    if not kind or when < time then
      kind, time, number = 'due', when, string.byte(text) == 101 and tonumber(o.members[(o.at_due + 1) / 2]) or -1
    end
  end
  if event and (not kind or event.time < time or event.time == time and event.m.number < number) then
    kind, time, number = 'made', event.time, event.m.number
  end
  for i = 1, #o.levels do
    local level = not o.levels[i].over and first_expiring(p, o, o.levels[i])
    if level and (not kind or level.expires < time or level.expires == time and level.number < number) then
      kind, time, number, expiring = 'level', level.expires, level.number, level
    end
  end
  return kind, time, expiring
end
