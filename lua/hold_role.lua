#!lua flags=allow-oom
-- Gives a role of a namespace to one client at a time: to its present holder, or to the first client that asks after
-- the holder's time has ended. Each new holder gets a fence above all earlier fences. The fence distinguishes the
-- actions of the new holder from late actions of an earlier holder.
--
-- KEYS[1] roles      hash of the namespace: for each role its holder, the end of the holder's time, and the fence
-- ARGV[1] role
-- ARGV[2] holder     the client that asks
-- ARGV[3] duration   the time in ms for which the client wants the role; 0 gives the role up
--
-- Result: { 1 if the client has the role, the fence, the time in ms until the holder's time ends }
-- Refusals: BADCALL
-- @use refuse server_time whole_number
local role, holder, duration = ARGV[1], ARGV[2], whole_number(ARGV[3], 0, 3600000)
if not string.find(role, '^[a-z]+$') or not string.find(holder, '^%w+$') or not duration then
  return refuse('BADCALL', 'role')
end
local now = tonumber(server_time())
local before, till, fence = string.match(redis.call('HGET', KEYS[1], role) or '', '^(%w+) (%d+) (%d+)$')
till, fence = tonumber(till or 0), tonumber(fence or 0)
-- If the clock has gone back, the stored end may be further ahead than the longest duration. Then the role is free.
local free = before == nil or till <= now or till > now + 3600000
if before ~= holder and (not free or duration == 0) then
  return { 0, fence, before and math.max(0, till - now) or 0 }
end
if before ~= holder or fence == 0 then
  fence = math.max(fence + 1, now) -- `now` is also higher than fences that a failover may have lost
end
redis.call('HSET', KEYS[1], role, string.format('%s %.0f %.0f', holder, duration > 0 and now + duration or 0, fence))
return { duration > 0 and 1 or 0, fence, duration }
