-- Stores messages for an entity in another slot, as check_transfer has checked them.
-- @use place_transfer inside
local function apply_transfer(p, argv, plan)
  local number = redis.call('HINCRBY', p.store, 'seq', plan.count) - plan.count
  for i = 1, plan.count do
    local at = plan.at + (i - 1) * plan.stride
    local level = plan.level and argv[at] or ''
    number, level = number + 1, level == '' and '0' or level
    place_transfer(p, number, level, argv[at + plan.stride - 1], plan.destination)
  end
end
