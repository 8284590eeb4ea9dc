-- Parses the counts of a topic or a subscription. The counts exist while the entity is not being deleted. They have
-- this form: "2 incarnation mark subscriptions sql correlation". The mark of a topic is the version that all its
-- partitions have been told. The mark of a subscription is chosen at random with every change of its rules. The last
-- two fields are the numbers of rules with an SQL filter and with a correlation filter.
--
-- Refusals: LAYOUT (the counts cannot be read; the detail has the layout and the name)
-- @use refuse_unreadable
local function tally(text, name)
  local incarnation, mark, subscriptions, sql, correlation = string.match(text, '^2 (%S+) (%S+) (%d+) (%d+) (%d+)$')
  if not incarnation then
    return nil, refuse_unreadable('counts', text, name)
  end
  return {
    incarnation = incarnation, mark = mark, subscriptions = tonumber(subscriptions), sql = tonumber(sql),
    correlation = tonumber(correlation),
  }
end
