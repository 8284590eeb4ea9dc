-- Returns whether a rule's place belongs to a subscription. A place is the subscription's path, a blank, and the rule's
-- name.
local function is_rule_of(place, name)
  return #place > #name + 1 and string.sub(place, 1, #name + 1) == name .. ' '
end
