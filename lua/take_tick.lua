#!lua flags=allow-oom
-- Gives each tick of a name to one caller. The ticks of a name begin at multiples of its period since 1970. The last
-- tick that was given is remembered for good, so no tick is given twice. At most 1,000 names are remembered: a new name
-- takes the place of names whose last tick ended more than a day ago.
--
-- KEYS[1] ticks     hash of the namespace: for each name the start of the last tick that was given, the period, the
--   number of ticks before it that no caller got, and the caller
-- ARGV[1] name
-- ARGV[2] period    in ms
-- ARGV[3] caller    a random text, by which the script recognises a repetition of the call
-- ARGV[4] now       the time of a test clock, or nothing
--
-- Result: { 1 if the caller gets a tick, its start in ms since 1970, the number of ticks since the last one that no
--   caller got, the time in ms until the next tick }; without a tick, the start and the number are 0
-- Refusals: BADCALL, FULL (there are too many names; the detail is the most)
-- Facts: repeatable
-- @use make_room never refuse server_time whole_number
local name, period, caller = ARGV[1], whole_number(ARGV[2], 1, 31536000000), ARGV[3]
local told = ARGV[4] ~= '' and whole_number(ARGV[4], 0, NEVER - 1)
if #ARGV ~= 4 or not string.find(name, '^%w[%w._-]*$') or not period or not string.find(caller, '^%w+$') or told == nil then
  return refuse('BADCALL', 'tick')
end
local now = told or tonumber(server_time())
local last, _, missed, whose = string.match(redis.call('HGET', KEYS[1], name) or '', '^(%d+) (%d+) (%d+) (%w+)$')
last = tonumber(last)
if last and whose == caller then
  return { 1, last, tonumber(missed), math.max(0, last - last % period + period - now) }
end
local start = now - now % period
-- If the last tick is further ahead than a day, the clock was wrong then.
if last and start <= last and last - now < math.max(period, 86400000) then
  return { 0, 0, 0, math.max(1, last - last % period + period - now) }
end
if not last then
  local refusal = make_room(KEYS[1], function(_, taken)
    local begun, length = string.match(taken, '^(%d+) (%d+) ')
    return tonumber(begun) + tonumber(length) < now - 86400000
  end)
  if refusal then
    return refusal
  end
end
missed = last and start > last and math.max(0, math.floor((start - last) / period) - 1) or 0
redis.call('HSET', KEYS[1], name, string.format('%.0f %d %.0f %s', start, period, missed, caller))
return { 1, start, missed, start + period - now }
