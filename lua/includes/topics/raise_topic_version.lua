-- Writes the record of a topic with the next version and a new stamp, and the counts of the topic. The calling script
-- also makes the change that affects how the topic's messages are judged. Returns the record.
-- @use add_stamp tally_text
local function raise_topic_version(keys, s, stamp)
  local topic = s.topic
  local record = table.concat({
    '2', string.format('%.0f', tonumber(topic.version) + 1), topic.id, topic.incarnation, add_stamp(topic.stamps, stamp),
    topic.created, topic.updated, string.sub(s.topic_record, topic.at),
  }, ' ')
  redis.call('HSET', keys[2], s.topic_name, record)
  redis.call('HSET', keys[7], s.topic_name, tally_text(s.of_topic))
  return record
end
