#!lua flags=allow-oom
-- Gives a role of a namespace to one client at a time: to who has it already, or to who asks first when its time is over. Each new
-- holder gets a fence above all before it, by which what it does is told from what the one before still does.
--
-- KEYS[1] roles      of the namespace, each with its holder, until when, and the fence
-- ARGV[1] role
-- ARGV[2] holder     who asks
-- ARGV[3] duration   in ms for which it is to have it; 0 gives it up
--
-- Result: { 1 if it has the role, the fence, in how many ms the holder's time is over }
-- Refusals: BADCALL
-- @use refuse server_time whole_number
local role, holder, duration = ARGV[1], ARGV[2], whole_number(ARGV[3], 0, 3600000)
if not string.find(role, '^[a-z]+$') or not string.find(holder, '^%w+$') or not duration then
  return refuse('BADCALL', 'role')
end
local now = tonumber(server_time())
local before, till, fence = string.match(redis.call('HGET', KEYS[1], role) or '', '^(%w+) (%d+) (%d+)$')
till, fence = tonumber(till or 0), tonumber(fence or 0)
-- A clock that went back gives nobody a role for longer than it was asked for.
local free = before == nil or till <= now or till > now + 3600000
if before ~= holder and (not free or duration == 0) then
  return { 0, fence, before and math.max(0, till - now) or 0 }
end
if before ~= holder or fence == 0 then
  fence = math.max(fence + 1, now) -- also above those that a failover may have lost
end
redis.call('HSET', KEYS[1], role, string.format('%s %.0f %.0f', holder, duration > 0 and now + duration or 0, fence))
return { duration > 0 and 1 or 0, fence, duration }
