-- Lets a message that an event has moved expire at a later time of the same pass. These events are in the order of
-- their times, and at one time in the order of numbers.
local function await_expiry(o, m, time)
  local first, last = o.at_made, #o.made + 1
  while first < last do
    local middle = math.floor((first + last) / 2)
    local event = o.made[middle]
    if event.time > time or event.time == time and event.m.number > m.number then
      last = middle
    else
      first = middle + 1
    end
  end
  table.insert(o.made, first, { time = time, m = m })
end
