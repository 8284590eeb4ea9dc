-- Returns the fields of a bucket of the registry; nothing if the bucket does not exist; or nil and a refusal.
--
-- Refusals: LAYOUT (another release wrote the bucket, or a field of it is damaged; the detail is `bucket`, and the
--   layout or `unreadable`), SLOTS (the bucket belongs to a namespace with another number of slots; the detail is
--   `bucket` and the number)
-- @use refuse same_slot whole_number
local function find_bucket(key, slots)
  local kept = redis.call('HMGET', key, 'layout', 'slots', 'last', 'run_id', 'channel', 'limited', 'created', 'floor')
  if not kept[1] then
    return nil
  end
  if kept[1] ~= '2' then
    return nil, refuse('LAYOUT', 'bucket ' .. kept[1])
  end
  if kept[2] ~= slots then
    return nil, refuse('SLOTS', 'bucket ' .. kept[2])
  end
  local last, floor = whole_number(kept[3], 0, 999999999999999), whole_number(kept[8], 0, 999999999999999)
  if not last or not floor or not kept[4] or not kept[5] or not same_slot(key, kept[5]) or not kept[7] then
    return nil, refuse('LAYOUT', 'bucket unreadable')
  end
  return {
    last = last, run_id = kept[4], channel = kept[5], limited = kept[6] == '1', created = kept[7], floor = floor,
  }
end
