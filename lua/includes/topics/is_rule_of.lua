-- Whether a rule's place is one in its subscription: the path of that, a blank, and the name of the rule.
local function is_rule_of(place, name)
  return #place > #name + 1 and string.sub(place, 1, #name + 1) == name .. ' '
end
