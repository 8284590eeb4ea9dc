-- Opens a call on the registry of a namespace: refuses a call that must not run, and otherwise returns the fields of
-- the namespace.
--
-- Refusals: NAMESPACE (the namespace does not exist), LAYOUT (another release wrote the data), PARTITIONS (the caller
--   assumes another number of partitions; the detail is the right number)
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
