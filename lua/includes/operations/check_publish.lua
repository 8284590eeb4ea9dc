-- Checks the arguments of a publish, from `at` on: the columns of the messages, the incarnations of the subscriptions, a
-- fence, and then the messages. Returns what apply_publish and finish_targets need; or nil and a refusal.
-- @use check_messages open_targets parse_copies refuse whole_number
local function check_publish(p, keys, argv, at)
  local incoming, refused = check_messages(p, argv, argv[at], 'rctlido', at + 3)
  if not incoming then
    return nil, refused
  end
  local subscriptions, gone = open_targets(p, keys, argv[at + 1])
  if not subscriptions then
    return nil, gone
  end
  local copies, widths, total = parse_copies(argv, incoming, subscriptions)
  local fence = argv[at + 2] ~= '' and whole_number(argv[at + 2], 1, 999999999999999)
  if not copies or fence == nil then
    return nil, refuse('BADCALL', 'routes')
  end
  if fence and tonumber(redis.call('HGET', p.state, 'fence')) > fence then
    return nil, refuse('FENCED', argv[at + 2])
  end
  return {
    incoming = incoming, subscriptions = subscriptions, copies = copies, widths = widths, total = total,
    fence = fence and argv[at + 2],
  }
end
