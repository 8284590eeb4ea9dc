-- Parses the grants of a call: all arguments from `at` on; engine/_grants.py makes them. Returns nil if one of them is
-- malformed, or if there are more than 32. A grant at a held session has `session`, and its receiver is the token.
-- @use flags_of parse_token same_slot
local function parse_grants(p, argv, at)
  local list, seen = {}, {}
  if #argv - at >= 32 then
    return nil
  end
  for i = 1, #argv - at + 1 do
    local receiver, channel, number, run, prefix, serial, messages, bytes, begun, hands, callers, limit, most_bytes, flags,
      retired, first, source = string.match(argv[at + i - 1] or '',
      '^([%w_.-]+) (%S*) (%d+) (%S+) ([%w_-]+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([abdilnosy]*) (%S*) (%S*) (.*)$')
    local session = source and string.byte(source) == 61 and string.sub(source, 2) or nil
    local most, room = string.match(first or '', '^(%d+):(%d+)$')
    local has = flags_of[flags or '']
    local other = source == '' or source == 'd' or source == 't' or source == 'next'
    if not receiver or #receiver > 64
      or math.max(#number, #serial, #messages, #bytes, #begun, #hands, #callers, #limit, #most_bytes) > 15 -- below 2^53
      or string.find(retired, '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') or #run > 8 or #prefix ~= 8 or not other and not session
      or session and (not parse_token(receiver) or #session > 512 or string.find(session, '\255', 1, true))
      or first ~= '' and (source ~= 'next' or not most or most + 0 > 1000 or room + 0 > 1073741824)
      or not session and (has.l or has.y)
      or channel ~= '' and not same_slot(p.state, channel) or channel == '' and not has.n then
      return nil
    end
    local g = {
      key = receiver .. ' ' .. source, receiver = receiver, source = source, session = session, channel = channel,
      number = number + 0, run = run, prefix = prefix,
      seen = serial + 0, messages = messages + 0, bytes = bytes + 0, begun = begun + 0, hands = hands + 0, callers = callers + 0,
      limit = limit + 0, most_bytes = most_bytes + 0, retired = {},
      begins = has.b == true, again = has.a == true, announced = has.i == true, now = has.n == true, once = has.o == true,
      suspects = has.s == true, delete = has.d == true, leaves = has.l == true, yields = has.y == true,
      first = (most or 0) + 0, first_bytes = (room or 0) + 0,
    }
    if session or source == 'next' then -- a session keeps its order, so it gives out suspects in any case
      g.careful, g.suspects = not g.suspects, true
    end
    for of, of_serial, of_begun in string.gmatch(retired, '([%w_-]+):(%d+):(%d+)') do
      g.retired[#g.retired + 1] = { prefix = of, seen = of_serial + 0, begun = of_begun + 0 }
    end
    if retired ~= '' and (#g.retired > 32 or string.gsub(retired .. ',', '[%w_-]+:%d+:%d+,', '') ~= '')
      or g.limit < g.messages or g.limit > g.messages + 100000 or g.callers < g.messages or g.callers > g.limit or g.hands < 1
      or g.hands > 100000 or g.most_bytes < g.bytes or g.most_bytes > g.bytes + 1073741824 or g.number < 1 or seen[g.key] then
      return nil
    end
    seen[g.key], list[i] = true, g
  end
  return list
end
