-- Opens a call that creates or changes a rule of a subscription, with the arguments of create_rule.lua. Returns the
-- request with the existing rule of that name; or nil and the reply, if the call is refused or is a repetition.
--
-- Refusals: NAMESPACE, LAYOUT, SLOTS, GONE (there is no such subscription, or it has another incarnation, or it is
--   being deleted), BADCALL
-- @use is_rule_of open_bucket open_subscription parse_rule parse_stamp refuse server_time whole_number
local function open_rule_change(keys, argv)
  local stamp = parse_stamp(argv[6])
  local most_sql, most_correlation = whole_number(argv[10], 0, 999999), whole_number(argv[11], 0, 999999)
  if not parse_stamp(argv[5]) or not stamp or not is_rule_of(argv[7], argv[4])
    or not string.find(argv[8], '^[sct]$') or argv[9] == ''
    or not most_sql or not most_correlation then
    return nil, refuse('BADCALL', 'rule')
  end
  local n, refusal = open_bucket(keys[1], argv[2])
  if not n then
    return nil, refusal
  end
  local s, gone = open_subscription(keys, argv[3], argv[4], argv[5])
  if not s then
    return nil, gone
  end
  local text, before = redis.call('HGET', keys[5], argv[7]), nil
  if text then
    local foreign
    before, foreign = parse_rule(text, argv[7])
    if not before then
      return nil, foreign
    end
  end
  if string.find(s.topic.stamps, stamp, 1, true) or before and before.stamp == stamp then
    return nil, { s.topic_record, tonumber(before and before.created or server_time()) }
  end
  return { n = n, s = s, stamp = stamp, before = before, most_sql = most_sql, most_correlation = most_correlation }
end
