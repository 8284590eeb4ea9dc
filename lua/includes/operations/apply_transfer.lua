-- Stores messages for an entity in another slot, as check_transfer has checked them.
-- @use place_transfer write_many inside
local function apply_transfer(p, argv, plan)
  local number, fields = redis.call('HINCRBY', p.store, 'seq', plan.count) - plan.count, {}
  for i = 1, plan.count do
    local at = plan.at + (i - 1) * plan.stride
    local level = plan.level and argv[at] or ''
    number, level = number + 1, level == '' and '0' or level
    place_transfer(p, fields, number, level, argv[at + plan.stride - 1], plan.destination)
  end
  for key, list in pairs(fields) do
    write_many('HSET', key, list)
  end
end
