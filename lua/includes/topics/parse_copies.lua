-- Returns three things: the copies of each message of a call, in the order of their subscriptions; how many numbers
-- each message takes; and the sum of these. Further copies for the same subscription have numbers of their own. A
-- message that names a due time may be unjudged: it then has false in place of copies. Returns nil if the routes are
-- malformed, or if several messages have more copies than a call may carry.
-- @use never split_words whole_number
local function parse_copies(argv, incoming, targets)
  local MOST = 20000
  local columns, copies, widths, total, sum = incoming.columns, {}, {}, 0, 0
  if not columns.r then
    return nil
  end
  for i = 1, incoming.count do
    local at = incoming.at + (i - 1) * incoming.stride
    local unjudged = argv[at + columns.r] == '-'
    local texts = unjudged and {} or split_words(argv[at + columns.r])
    local changes, last, from, width = columns.c and argv[at + columns.c] or '', 0, 1, 1
    local list, same = {}, 0
    for j = 1, #texts do
      local place, kind, length, ttl = string.match(texts[j], '^(%d+)([ae]?)(%d*)t?(%d*)$')
      place = whole_number(place, 1, #targets)
      if kind == '' then
        length = length == '' and ttl == '' and 0 or nil
      else
        length = whole_number(length, 0, #changes)
      end
      ttl = ttl and ttl ~= '' and (whole_number(ttl, 0, NEVER) or -1) or nil
      if not place or not length or ttl == -1 or place < last or from + length - 1 > #changes then
        return nil
      end
      same, last = place == last and same + 1 or 1, place
      width = math.max(width, same)
      list[j] = { target = targets[place], dead = kind == 'e', ttl = ttl, changes = string.sub(changes, from, from + length - 1) }
      from = from + length
    end
    local origin = columns.o and argv[at + columns.o] or ''
    if origin ~= '' and not whole_number(origin, 1, 999999999999999) then
      return nil
    end
    if from ~= #changes + 1 or unjudged and not (columns.d and argv[at + columns.d] ~= '') then
      return nil
    end
    copies[i], widths[i], total, sum = not unjudged and list, width, total + width, sum + #list
    if sum > MOST and incoming.count > 1 then
      return nil
    end
  end
  return copies, widths, total
end
