-- What is counted of a topic or a subscription as long as it is not being deleted: "1 incarnation mark subscriptions sql
-- correlation". The mark of a topic is the version that all its partitions have been told; that of a subscription is drawn
-- with every change of its rules. The last two are how many rules have an SQL or a correlation filter.
--
-- Refusals: LAYOUT (of another release)
-- @use refuse
local function tally(text)
  local incarnation, mark, subscriptions, sql, correlation = string.match(text, '^1 (%S+) (%S+) (%d+) (%d+) (%d+)$')
  if not incarnation then
    return nil, refuse('LAYOUT', string.match(text, '^%w+') or 'unknown')
  end
  return {
    incarnation = incarnation, mark = mark, subscriptions = tonumber(subscriptions), sql = tonumber(sql),
    correlation = tonumber(correlation),
  }
end
