-- Returns the facts of a namespace: its number of slots, its creation time in ms, its numbers of queues with
-- topics and of subscriptions, the largest size of all of them together in megabytes, and the limits of both, each a
-- text or nothing. Returns false if the namespace does not exist. `wanted` is the number of slots that it must
-- have, or nothing.
--
-- Refusals: LAYOUT (another release wrote the data), SLOTS (the namespace has another number of slots)
-- @use refuse
local function namespace_facts(keys, wanted)
  local kept = redis.call('HMGET', keys[1], 'layout', 'slots', 'created', 'megabytes', 'max_entities', 'max_megabytes')
  if not kept[1] then
    return false
  end
  if kept[1] ~= '2' then
    return refuse('LAYOUT', kept[1])
  end
  if wanted and wanted ~= tonumber(kept[2]) then
    return refuse('SLOTS', kept[2])
  end
  return {
    tonumber(kept[2]), tonumber(kept[3]), redis.call('ZCARD', keys[3]), redis.call('ZCARD', keys[4]), tonumber(kept[4]) or 0,
    kept[5] or '', kept[6] or '',
  }
end
