-- Checks a new value of a watermark: its name, the value that it must have now, and the new value. A value is 1 to 128
-- printable characters. An empty value means that the watermark is not there. Returns what apply_advance needs; or nil
-- and a refusal. A partition keeps up to 10,000 watermarks. In a transaction, `p.watermarks` has the names that earlier
-- operations change, and the number of watermarks after them.
--
-- Refusals: CHANGED (the watermark has another value; the detail is the number of the last message that was sent with
--   it, and the value; or a hyphen, if it is not there), FULL (there are too many watermarks; the detail is the most),
--   BADCALL
-- @use refuse inside
local function check_advance(p, argv)
  local function fits(value)
    return value and #value <= 128 and string.find(value, '^[ -~]*$')
  end
  local name, expected, value = argv[1], argv[2], argv[3]
  local known = p.watermarks or { named = {} }
  if #argv ~= 3 or #name < 1 or #name > 512 or known.named[name] or not fits(expected) or not fits(value) or expected .. value == '' then
    return nil, refuse('BADCALL', 'watermark')
  end
  local found = redis.call('HMGET', p.lasting, 'w:' .. name, 'watermarks')
  local number, stored = string.match(found[1] or '', '^(%d+) (.*)$')
  if (stored or '') ~= expected then
    return nil, refuse('CHANGED', found[1] or '-')
  end
  local count = (known.count or tonumber(found[2] or 0)) + (value == '' and -1 or stored and 0 or 1)
  if not stored and count > 10000 then
    return nil, refuse('FULL', '10000')
  end
  known.named[name], known.count, p.watermarks = true, count, known
  return { name = name, value = value, number = tonumber(number or 0), count = count }
end
