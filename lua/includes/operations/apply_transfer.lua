-- Stores messages for an entity in another slot, as check_transfer has checked them. They wait here until a client
-- moves them. Their life begins at their destination: until then no time to live runs, no receiver gets them, and
-- duplicate detection does not see them. The record of such a message is that of a scheduled one. The last part of its
-- entry, where other messages have changed properties, is its destination.
-- @use never_text transfer
-- @use record_key write_many inside
local function apply_transfer(p, argv, plan)
  local number, fields = redis.call('HINCRBY', p.store, 'seq', plan.count) - plan.count, {}
  for i = 1, plan.count do
    local at = plan.at + (i - 1) * plan.stride
    local level, ttl = plan.level and argv[at + plan.level - 1] or '', plan.ttl and argv[at + plan.ttl - 1] or ''
    number, level = number + 1, level == '' and '0' or level
    local record = 's' .. level .. (ttl == '' and NEVER_TEXT or string.format('%013.0f', tonumber(ttl))) .. argv[at + plan.stride - 1]
    p.placed[#p.placed + 1] = TRANSFER + number
    p.placed[#p.placed + 1] = number
    p.entered[#p.entered + 1] = number
    p.entered[#p.entered + 1] = string.format('            %sx-00000%s%d;;', level, NEVER_TEXT, #record) .. plan.destination
    local key = record_key(p.keys, number)
    fields[key] = fields[key] or {}
    fields[key][#fields[key] + 1] = number
    fields[key][#fields[key] + 1] = record
    p.bytes = p.bytes + #record + #plan.destination
    if #record > p.biggest then
      p.biggest, p.changed.biggest = #record, #record
    end
  end
  for key, list in pairs(fields) do
    write_many('HSET', key, list)
  end
  p.transferred = true
end
