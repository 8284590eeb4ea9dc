-- Returns whether a channel is in the slot of a key. Publishing to another slot would abort a later script in the
-- middle.
local function same_slot(key, channel)
  local tag = string.sub(key, 1, string.find(key, '}', 1, true))
  return string.sub(channel, 1, #tag) == tag
end
