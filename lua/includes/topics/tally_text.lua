-- What is counted, as tally.lua reads it.
local function tally_text(t)
  return string.format('1 %s %s %.0f %.0f %.0f', t.incarnation, t.mark, t.subscriptions, t.sql, t.correlation)
end
