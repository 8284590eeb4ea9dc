-- Returns a token that changes whenever the rules of a topic change: its incarnation and its version. The token is
-- empty if the topic is being deleted, because its version no longer changes then.
local function rules_stamp(tallies, name, topic)
  return redis.call('HEXISTS', tallies, name) == 1 and topic.incarnation .. ' ' .. topic.version or ''
end
