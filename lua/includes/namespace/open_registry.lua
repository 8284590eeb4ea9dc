-- Opens a call on the registry of a namespace: refuses a call that must not run, and otherwise returns the fields of
-- the namespace.
--
-- Refusals: NAMESPACE (the namespace does not exist), LAYOUT (another release wrote the data), SLOTS (the caller
--   assumes another number of slots; the detail is the right number)
-- @use refuse
local function open_registry(key, slots)
  local kept = redis.call('HMGET', key, 'layout', 'slots', 'last_id', 'run_id')
  if not kept[1] then
    return nil, refuse('NAMESPACE', 'missing')
  end
  if kept[1] ~= '2' then
    return nil, refuse('LAYOUT', kept[1])
  end
  if kept[2] ~= slots then
    return nil, refuse('SLOTS', kept[2])
  end
  return { last_id = tonumber(kept[3]), run_id = kept[4] }
end
