-- Returns a subscription and its topic, if neither is being deleted: their parsed records and their counts.
--
-- Refusals: GONE (the subscription or its topic does not exist, or is being deleted, or the subscription has another
--   incarnation), LAYOUT (one of the texts cannot be read)
-- @use parse_entity refuse tally
local function open_subscription(keys, topic_name, name, incarnation)
  local records = redis.call('HMGET', keys[2], topic_name, name)
  local tallies = redis.call('HMGET', keys[7], topic_name, name)
  if not (records[1] and records[2] and tallies[1] and tallies[2]) then
    return nil, refuse('GONE', name)
  end
  local s, foreign = { topic_name = topic_name, name = name, topic_record = records[1], record = records[2] }, nil
  s.topic, foreign = parse_entity(records[1], topic_name)
  if not s.topic then
    return nil, foreign
  end
  s.entity, foreign = parse_entity(records[2], name)
  if not s.entity then
    return nil, foreign
  end
  s.of_topic, foreign = tally(tallies[1], topic_name)
  if not s.of_topic then
    return nil, foreign
  end
  s.own, foreign = tally(tallies[2], name)
  if not s.own then
    return nil, foreign
  end
  if s.entity.incarnation ~= incarnation then
    return nil, refuse('GONE', name)
  end
  return s
end
