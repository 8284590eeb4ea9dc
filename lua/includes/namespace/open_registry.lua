-- Opens a call on the registry of a namespace: refuses what must not run, else gives what the namespace keeps of itself.
--
-- Refusals: NAMESPACE (there is none, or no longer), LAYOUT (of another release), PARTITIONS (the caller goes by another
--   number)
-- @use refuse
local function open_registry(key, partitions)
  local kept = redis.call('HMGET', key, 'layout', 'partitions', 'last_id', 'run_id')
  if not kept[1] then
    return nil, refuse('NAMESPACE', 'missing')
  end
  if kept[1] ~= '1' then
    return nil, refuse('LAYOUT', kept[1])
  end
  if kept[2] ~= partitions then
    return nil, refuse('PARTITIONS', kept[2])
  end
  return { last_id = tonumber(kept[3]), run_id = kept[4] }
end
