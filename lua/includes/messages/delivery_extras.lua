-- Adds to a reply the facts about a message that its record does not contain: its index in the reply, a part of its
-- entry (home, in capitals if it is a suspect; reason, failed deliveries and expiry, see `entry`; and the number that a
-- dead letter had before it died), and its changed properties. Returns the size of its changed properties. `at` is the
-- position after which these begin, if the caller knows it.
local function delivery_extras(list, place, text, at)
  local _
  if not at then
    _, at = string.find(text, ';%d*;%d*;', 34)
  end
  local n, facts, mark = #list, string.sub(text, 14, 33), string.byte(text, 12) % 64
  if mark == 48 or mark > 49 then -- a suspect
    facts = string.upper(string.sub(facts, 1, 1)) .. string.sub(facts, 2)
  end
  if string.byte(facts, 2) ~= 45 then -- not -: a dead letter
    local record, before = string.match(text, '^%d+;(%d*);(%d*);', 34)
    facts = facts .. (before ~= '' and before or record)
  end
  list[n + 1], list[n + 2], list[n + 3] = place, facts, string.sub(text, at + 1)
  return #text - at
end
