-- Pushes a gift, or interest, to a receiver; engine/_grants.py reads the text. Returns whether anybody listens. Without
-- a listener the grant ends. `told` notes since when interest is unanswered. With `others_wait`, the interest says that
-- other sessions wait.
-- @use number_text open_credit
local function push_to(p, w, gift, others_wait)
  local receiver = string.sub(w.key, 1, string.find(w.key, ' ', 1, true) - 1)
  local parts, lengths, interest = { w.source, others_wait and 'w' or nil }, {}, not gift
  while gift do
    parts[#parts + 1] = gift[1]
    if type(gift[2]) == 'string' then -- a session, and perhaps its first messages
      parts[#parts + 1], gift = gift[2], gift[3]
    else
      parts[#parts + 1] = table.concat(gift[2], ' ')
      for part = 3, 4 do
        for i = 1, #gift[part] do
          parts[#parts + 1] = gift[part][i]
        end
      end
      gift = nil
    end
  end
  for i = 1, #parts do
    lengths[i] = number_text[#tostring(parts[i])]
  end
  local text = receiver .. ' ' .. string.sub(p.run, 1, 8) .. ' ' .. number_text[p.now] .. ' ' .. w.prefix
    .. ' ' .. table.concat(lengths, ',') .. '\n' .. table.concat(parts)
  local heard = w.channel ~= '' and redis.call('SPUBLISH', w.channel, text) > 0
  if not heard then
    w.limit, w.announced = math.min(w.limit, w.messages), false
  elseif interest then
    w.told = p.now
  end
  open_credit(p).dirty[w.key] = w
  return heard
end
