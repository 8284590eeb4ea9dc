-- Returns a refusal if the namespace may not have so many more entities, or so many more megabytes. What its entities
-- have already may be over a limit that was set later, so a call that needs nothing more is not refused.
--
-- Refusals: QUOTA (the detail is `entities` and the limit, or `megabytes`, the present size and the limit)
-- @use refuse
local function refuse_over_limit(keys, entities, megabytes)
  local kept = redis.call('HMGET', keys[1], 'max_entities', 'max_megabytes', 'megabytes')
  local has = kept[1] and redis.call('ZCARD', keys[3]) + redis.call('ZCARD', keys[4])
  if has and entities > 0 and has + entities > tonumber(kept[1]) then
    return refuse('QUOTA', 'entities ' .. kept[1])
  end
  local size = kept[3] or '0'
  if kept[2] and megabytes > 0 and size + megabytes > tonumber(kept[2]) then
    return refuse('QUOTA', 'megabytes ' .. size .. ' ' .. kept[2])
  end
end
