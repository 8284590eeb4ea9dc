#!lua flags=allow-oom
-- Closes an idle partition, because its entity is about to be removed: the partition gets the version of settings that
-- follows the version that all clients know, so it answers STALE to them. A client that reads the registry after this
-- takes the removal back. It then knows the new version, and the partition is open again for it. If the partition is
-- closed already, the script checks again that it is idle.
--
-- A partition is idle if no user has called it for the given time and nothing in it waits for something: it has no
-- scheduled messages, none that wait for a mover, it forwards no messages, and it is not reserved. Due work is done
-- first, because it may make dead letters that are to be forwarded; a partition with due work that is left is in use.
-- The time of the last use may be up to a minute behind, so a partition is closed one minute later than the given time
-- says.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    idle        the time in ms without use after which the entity is removed
-- ARGV[8]    closed      the version that a closed partition has
--
-- Result: { 1 if the partition is closed; the time in ms since its last use, or 0 if it is in use now }
-- Refusals: call
-- Facts: repeatable, laneless
-- @use advance band finish never refuse sides whole_number
local idle, version = whole_number(ARGV[7], 1, NEVER), tonumber(ARGV[3])
local closed = whole_number(ARGV[8], version, version + 1)
if not idle or not closed then
  return refuse('BADCALL', 'close')
end

advance(p, 250)
local used, waits = p.used, p.forwards or p.reserved or p.more == 1
if p.topic then
  used = math.max(used, tonumber(redis.call('HGET', p.store, 'used') or 0))
end
local function holds(from)
  waits = waits or from and redis.call('ZCOUNT', p.order, from, from + BAND - 1) > 0
end
holds(SIDES[''].scheduled)
holds(SIDES[''].transfer)
holds(p.forwards_dead and SIDES.d.ready)
for _, prefix in ipairs({ '', 'd', 't' }) do
  holds(SIDES[prefix].frozen)
end
if used == 0 then -- the partition was made without a time: its idle time begins now
  used, p.changed.used = p.now, p.now
end
local quiet = waits and 0 or math.max(0, p.now - used)
local now_closed = quiet >= idle + 60000
if now_closed then
  p.changed.settings = string.gsub(redis.call('HGET', p.state, 'settings'), '^(%S+) %d+', '%1 ' .. ARGV[8])
end
finish(p, '')
return { now_closed and 1 or 0, quiet }
