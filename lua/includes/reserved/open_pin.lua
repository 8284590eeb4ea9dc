-- Reads the pin of a reserved partition for a call with a fence. A higher fence than that of the pin is adopted. It
-- writes nothing.
--
-- Refusals: BADCALL (malformed, or the partition is not reserved), OVERTAKEN (another client with a higher fence has
--   taken over; the detail is that fence)
-- @use parse_pin refuse whole_number
local function open_pin(p, fence_text)
  local fence = whole_number(fence_text, 1, 999999999999999)
  if not fence then
    return nil, refuse('BADCALL', 'reservation')
  end
  if not p.reserved then
    return nil, refuse('BADCALL', 'the partition is not reserved')
  end
  local found = redis.call('HMGET', p.state, 'pin', 'birth')
  local pin = parse_pin(found[1])
  if fence < pin.fence then
    return nil, refuse('OVERTAKEN', string.format('%.0f', pin.fence))
  end
  pin.fence, pin.birth, pin.at = fence, found[2], p.now
  return pin
end
