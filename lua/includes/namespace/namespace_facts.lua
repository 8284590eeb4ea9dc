-- Returns the facts of a namespace: its number of slots, its creation time in ms, the largest number of its entities
-- and the largest size of all of them together in megabytes, each a text or nothing. Returns false if the namespace
-- does not exist. `wanted` is the number of slots that it must have, or nothing.
--
-- Refusals: LAYOUT (another release wrote the data), SLOTS (the namespace has another number of slots)
-- @use refuse
local function namespace_facts(keys, wanted)
  local kept = redis.call('HMGET', keys[1], 'layout', 'slots', 'created', 'max_entities', 'max_megabytes')
  if not kept[1] then
    return false
  end
  if kept[1] ~= '2' then
    return refuse('LAYOUT', kept[1])
  end
  if wanted and wanted ~= tonumber(kept[2]) then
    return refuse('SLOTS', kept[2])
  end
  return { tonumber(kept[2]), tonumber(kept[3]), kept[4] or '', kept[5] or '' }
end
