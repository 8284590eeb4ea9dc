#!lua flags=no-writes
-- Reads a rule of a subscription.
--
-- KEYS[1-10] bucket   in the order of begin_bucket.lua
-- ARGV[1] slots       the namespace's number of slots, as the caller knows it
-- ARGV[2] place       of the rule: the path of the subscription, a blank, the name of the rule in lower case
--
-- Result: the rule, or nothing, or an empty text if a list has the place but there is no rule
-- Refusals: NAMESPACE, LAYOUT, SLOTS
-- Facts: repeatable
-- @use open_bucket
local n, refusal = open_bucket(KEYS[1], ARGV[1])
if not n then
  return refusal
end
return redis.call('HGET', KEYS[5], ARGV[2]) or redis.call('ZSCORE', KEYS[6], ARGV[2]) and '' or nil
