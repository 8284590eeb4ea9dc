-- Pushes a gift, or interest, to a receiver; engine/_grants.py reads the text. Returns whether anybody listens. Without
-- a listener the grant ends. `told` notes since when interest is unanswered. With `others_wait`, the interest says that
-- other sessions wait.
-- @use open_credit
local function push_to(p, w, gift, others_wait)
  local receiver = string.match(w.key, '^%S+')
  local parts, lengths = { w.source, others_wait and 'w' or nil }, {}

  -- Add the parts of a gift: of messages, or of a session with its first messages.
  local function add(some)
    parts[#parts + 1] = some[1]
    if type(some[2]) == 'string' then
      parts[#parts + 1] = some[2]
      if some[3] then
        add(some[3])
      end
      return
    end
    parts[#parts + 1] = table.concat(some[2], ' ')
    for part = 3, 4 do
      for i = 1, #some[part] do
        parts[#parts + 1] = some[part][i]
      end
    end
  end

  if gift then
    add(gift)
  end
  for i = 1, #parts do
    lengths[i] = #tostring(parts[i])
  end
  local text = string.format('%s %s %.0f %s ', receiver, string.sub(p.run, 1, 8), p.now, w.prefix) .. table.concat(lengths, ',')
    .. '\n' .. table.concat(parts)
  local heard = w.channel ~= '' and redis.call('SPUBLISH', w.channel, text) > 0
  if not heard then
    w.limit, w.announced = math.min(w.limit, w.messages), false
  elseif not gift then
    w.told = p.now
  end
  open_credit(p).dirty[w.key] = w
  return heard
end
