-- By what two readings of a topic are known to be of the same state of what its messages are judged by: its incarnation and its
-- version, or nothing if it is being deleted, for then it is raised no more.
local function rules_stamp(tallies, name, topic)
  return redis.call('HEXISTS', tallies, name) == 1 and topic.incarnation .. ' ' .. topic.version or ''
end
