#!lua flags=allow-oom
-- Gives a role of a namespace to one client at a time: to its present holder, or to the first client that asks after
-- the holder's time has ended. Each new holder gets a fence above all earlier fences. The fence distinguishes the
-- actions of the new holder from late actions of an earlier holder. The roles of applications have the prefix `own.`.
-- Of these, at most 1,000 are remembered: a new one takes the place of roles that have been free for a day.
--
-- KEYS[1] roles      hash of the namespace: for each role its holder, the end of the holder's time, and the fence
-- ARGV[1] role
-- ARGV[2] holder     the client that asks
-- ARGV[3] duration   the time in ms for which the client wants the role; 0 gives the role up
--
-- Result: { 1 if the client has the role, the fence, the time in ms until the holder's time ends }
-- Refusals: BADCALL, FULL (there are too many roles of applications; the detail is the most)
-- Facts: repeatable
-- @use make_room refuse server_time whole_number
local role, holder, duration = ARGV[1], ARGV[2], whole_number(ARGV[3], 0, 3600000)
local own = string.find(role, '^own%.%w[%w._-]*$')
if not own and not string.find(role, '^[a-z]+$') or not string.find(holder, '^%w+$') or not duration then
  return refuse('BADCALL', 'role')
end
local now = tonumber(server_time())
local before, till, fence = string.match(redis.call('HGET', KEYS[1], role) or '', '^(%w+) (%d+) (%d+)$')
if own and not before and duration > 0 then
  local refusal = make_room(KEYS[1], function(name, held)
    local ended, used = string.match(held, '^%w+ (%d+) (%d+)$')
    -- A later holder gets a fence of `now` at least, so a fence below `now` need not be remembered.
    return string.find(name, '^own%.') and tonumber(ended) < now - 86400000 and tonumber(used) < now
  end)
  if refusal then
    return refusal
  end
end
till, fence = tonumber(till or 0), tonumber(fence or 0)
-- If the clock has gone back, the stored end may be further ahead than the longest duration. Then the role is free.
local free = before == nil or till <= now or till > now + 3600000
if before ~= holder and (not free or duration == 0) then
  return { 0, fence, before and math.max(0, till - now) or 0 }
end
if before ~= holder or fence == 0 then
  fence = math.max(fence + 1, now) -- `now` is also higher than fences that a failover may have lost
end
redis.call('HSET', KEYS[1], role, string.format('%s %.0f %.0f', holder, now + duration, fence))
return { duration > 0 and 1 or 0, fence, duration }
