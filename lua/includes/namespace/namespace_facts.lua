-- Returns the number of partitions of a namespace and its creation time in ms; false if the namespace does not exist.
-- `wanted` is the number of partitions that it must have, or nothing.
--
-- Refusals: LAYOUT (another release wrote the data), PARTITIONS (the namespace has another number of partitions)
-- @use refuse
local function namespace_facts(key, wanted)
  local kept = redis.call('HMGET', key, 'layout', 'partitions', 'created')
  if not kept[1] then
    return false
  end
  if kept[1] ~= '1' then
    return refuse('LAYOUT', kept[1])
  end
  if wanted and wanted ~= tonumber(kept[2]) then
    return refuse('PARTITIONS', kept[2])
  end
  return { tonumber(kept[2]), tonumber(kept[3]) }
end
