-- Pushes a gift, or interest, to a receiver; engine/_grants.py reads the text. Returns whether anybody listens. Without
-- a listener the grant ends. `told` notes since when interest is unanswered.
-- @use open_credit
local function push_to(p, w, gift)
  local receiver = string.match(w.key, '^%S+')
  local parts, lengths = { w.source }, { #w.source }
  if gift then
    parts[2], parts[3] = gift[1], table.concat(gift[2], ' ')
    for part = 3, 4 do
      for i = 1, #gift[part] do
        parts[#parts + 1] = gift[part][i]
      end
    end
    for i = 2, #parts do
      lengths[i] = #tostring(parts[i])
    end
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
