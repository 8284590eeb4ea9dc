-- Returns counts in the form that tally.lua reads.
local function tally_text(t)
  return string.format('2 %s %s %.0f %.0f %.0f', t.incarnation, t.mark, t.subscriptions, t.sql, t.correlation)
end
