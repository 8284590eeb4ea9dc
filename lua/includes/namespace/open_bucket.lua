-- Opens a call on a bucket of the registry: returns the fields of the bucket, or nil and a refusal.
--
-- Refusals: those of find_bucket, NAMESPACE (the bucket does not exist)
-- @use find_bucket refuse
local function open_bucket(key, slots)
  local n, refusal = find_bucket(key, slots)
  if not n then
    return nil, refusal or refuse('NAMESPACE', 'missing')
  end
  return n
end
