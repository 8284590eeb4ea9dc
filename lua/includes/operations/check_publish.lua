-- Checks the arguments of a publish, from `at` on: the columns of the messages, the incarnations of the subscriptions,
-- a fence, and then the messages. The keys of the subscriptions begin at `from`; `open` is that of open_targets.
-- Returns what apply_publish and finish_targets need, and the place of the first key after those of the subscriptions;
-- or nil and a refusal.
-- @use check_messages open_targets parse_copies refuse whole_number inside
local function check_publish(p, keys, argv, at, from, open)
  local incoming, refused = check_messages(p, argv, argv[at], 'rctlido', at + 3)
  if not incoming then
    return nil, refused
  end
  local subscriptions, last = open_targets(p, keys, argv[at + 1], from, open)
  if not subscriptions then
    return nil, last
  end
  local copies, widths, total = parse_copies(argv, incoming, subscriptions)
  local fence = argv[at + 2] ~= '' and whole_number(argv[at + 2], 1, 999999999999999)
  if not copies or fence == nil then
    return nil, refuse('BADCALL', 'routes')
  end
  if fence and tonumber(p.changed.route_fence or redis.call('HGET', p.state, 'route_fence')) > fence then
    return nil, refuse('FENCED', argv[at + 2])
  end
  return {
    incoming = incoming, subscriptions = subscriptions, copies = copies, widths = widths, total = total,
    fence = fence and argv[at + 2],
  }, last
end
