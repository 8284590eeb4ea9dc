-- Adds differences, which may be negative, to the filter counts of a topic. Returns a refusal if a count exceeds its
-- limit.
--
-- Refusals: QUOTA (the topic would have too many filters of one kind; the detail names the kind and its limit)
-- @use refuse
local function count_filters(t, sql, correlation, most_sql, most_correlation)
  t.sql, t.correlation = t.sql + sql, t.correlation + correlation
  if sql > 0 and t.sql > most_sql then
    return refuse('QUOTA', string.format('sql %.0f', most_sql))
  end
  if correlation > 0 and t.correlation > most_correlation then
    return refuse('QUOTA', string.format('correlation %.0f', most_correlation))
  end
  return nil
end
