#!lua flags=allow-oom
-- Ends the latest plan of a reserved partition, because the reservation ends: first removes the committed messages,
-- then unpins the others, from the last one to the first. An unpinned message expires as before. Each call does a
-- limited share. The numbers of later plans are higher than that of the ended one. The call may be repeated.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    fence       of the reservation
--
-- Result: { more, the number of the latest plan, the number up to which messages are committed, the number of the last
--   pinned message }. If `more` is 1, messages are left: make the call again. At the end the two numbers are the same
-- Refusals: call, OVERTAKEN (another client with a higher fence has taken over)
-- Facts: use, repeatable, laneless
-- @use add_pair advance due_name end_of_range entry_or_default finish never_text open_pin pin_text read_messages
-- @use ready_levels ready_messages remove_committed
local pin, unfit = open_pin(p, ARGV[7])
if not pin then
  return unfit
end

advance(p, 20)
local more = remove_committed(p, pin)
if not more and pin.upto > pin.floor then
  local _, count = ready_levels(p, pin.floor, pin.last)
  local after = count > 500 and end_of_range(p, pin.floor, pin.last, count - 500) or pin.floor
  local upwards, names = ready_messages(p, after, pin.last, 500), {}
  for i = #upwards, 1, -1 do
    names[#names + 1] = upwards[i]
  end
  -- The expiry of a message is in its entry or in its record, so as many are unpinned as have 2 MB together.
  local fit, entries, records = read_messages(p, names, 2097152)
  for i = 1, fit do
    local expires = entry_or_default(entries[i], records[i]).expires
    if expires ~= NEVER_TEXT then
      add_pair(p.awaited, tonumber(expires), due_name('e', names[i]))
    end
  end
  pin.last = (fit == #names and count <= 500) and pin.floor or tonumber(names[fit]) - 1
  pin.upto, pin.plan = pin.last, pin.plan + 1
  more = pin.last > pin.floor
end
p.changed.pin = pin_text(pin)
finish(p, '')
return { more and 1 or 0, pin.plan, pin.floor, pin.last }
