-- Checks the arguments of a publish, from `at` on: the columns of the messages, the incarnations of the subscriptions,
-- a fence, the bounds of a spread, and then the messages. The keys of the subscriptions begin at `from`; `open` is that
-- of open_targets. Returns what apply_publish and finish_targets need, and the place of the first key after those of
-- the subscriptions; or nil and a refusal.
-- @use check_messages open_targets parse_copies refuse whole_number inside
local function check_publish(p, keys, argv, at, from, open)
  local incoming, refused = check_messages(p, argv, argv[at], 'rctlido', at + 4)
  if not incoming then
    return nil, refused
  end
  local subscriptions, last = open_targets(p, keys, argv[at + 1], from, open)
  if not subscriptions then
    return nil, last
  end
  local copies, widths, total = parse_copies(argv, incoming, subscriptions)
  local fence = argv[at + 2] ~= '' and whole_number(argv[at + 2], 1, 999999999999999)
  local bounds, reached, to = argv[at + 3], '', ''
  if bounds ~= '' then
    reached, to = string.match(bounds, '^([%w_-]*):([%w_-]*)$')
  end
  if not copies or fence == nil or not reached then
    return nil, refuse('BADCALL', 'routes')
  end
  local seen, o = {}, incoming.columns.o
  for i = 1, bounds ~= '' and incoming.count or 0 do -- only messages that wait can be spread
    local origin = o and argv[incoming.at + (i - 1) * incoming.stride + o] or ''
    if not copies[i] or origin == '' or seen[origin] then
      return nil, refuse('BADCALL', 'routes')
    end
    seen[origin] = true
  end
  if fence and tonumber(p.changed.route_fence or redis.call('HGET', p.state, 'route_fence')) > fence then
    return nil, refuse('FENCED', argv[at + 2])
  end
  return {
    incoming = incoming, subscriptions = subscriptions, copies = copies, widths = widths, total = total,
    fence = fence and argv[at + 2], reached = reached, to = to,
  }, last
end
