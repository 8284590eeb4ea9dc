#!lua
-- Takes messages of a topic in for those of its subscriptions that they are for. A message is stored once, however many carry
-- it; one that is for none is gone, though its number is used up.
--
-- KEYS[1-27] partition   in the order of includes/begin.lua
-- KEYS[28...] targets    of each subscription: state, order, entries, due, waiters
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    columns     what stands before each payload: r route, and t time to live, l level, i message id, or nothing of
--   that
-- ARGV[8]    incarnations of the subscriptions, in one text with blanks between
-- ARGV[9...] messages    for each its columns (a route is places of subscriptions, from 1, with blanks between), and its
--   payload
--
-- Result: { more, the first number, how many were dropped }
-- Refusals: call, DISABLED (sending is), TOOLARGE (a message, by its place), QUOTA (the entity is full: bytes, of how many),
--   TARGET (a
--   subscription, by its place, is not here, or no longer)
-- @use advance
-- @use await_expiry
-- @use band
-- @use begin
-- @use bucket
-- @use check_incoming
-- @use finish
-- @use flush
-- @use known_ids
-- @use refuse
-- @use repeated
-- @use variadic
-- @use wake
-- @use whole
-- @use words
local p, refusal = begin(KEYS, ARGV, 'publish', 8, true)
if not p then
  return refusal
end
if p.repeated then
  local first, dropped = string.match(p.repeated, '^(%d+) (%d+)$')
  return repeated(p, { 0, tonumber(first), tonumber(dropped) })
end
local incoming, refused = check_incoming(p, ARGV, ARGV[7], 'rtli', 9)
if not incoming then
  return refused
end
local incarnations, targets = words(ARGV[8]), {}
if not incoming.route or #KEYS ~= 27 + 5 * #incarnations then
  return refuse('BADCALL', 'targets')
end
for i = 1, #incarnations do
  local at = 23 + 5 * i
  local s = redis.call('HMGET', KEYS[at], 'layout', 'incarnation', 'status', 'ttl', 'head', 'horizon', 'next_due', 'waiting',
    'biggest')
  if s[1] ~= '1' or s[2] ~= incarnations[i] or s[3] == 'Deleting' then
    return refuse('TARGET', string.format('%d', i))
  end
  if targets[KEYS[at]] then
    return refuse('BADCALL', 'targets')
  end
  targets[KEYS[at]] = true
  targets[i] = {
    state = KEYS[at], order = KEYS[at + 1], entries = KEYS[at + 2], due = KEYS[at + 3], waiters = KEYS[at + 4], now = p.now,
    ttl = tonumber(s[4]), head = tonumber(s[5]), horizon = tonumber(s[6]), next_due = tonumber(s[7]), waiting = s[8] == '1',
    biggest = tonumber(s[9]), changed = {}, placed = {}, taken = {}, entered = {}, forgotten = {}, awaited = {},
    unawaited = {}, dropped = {}, bytes = 0, sooner = math.huge,
  }
end
local routes = {}
for i = 1, incoming.count do
  local places, route, last = words(ARGV[9 + (i - 1) * incoming.stride + incoming.route]), {}, 0
  for j = 1, #places do
    local place = whole(places[j], 1, #targets)
    if not place or place <= last then
      return refuse('BADCALL', 'route')
    end
    route[j], last = targets[place], place
  end
  routes[i] = route
end

advance(p, 100)

local NEVER = 9999999999999
local known = known_ids(p, ARGV, incoming)
local number = redis.call('HINCRBY', p.store, 'seq', incoming.count) - incoming.count
local first, dropped, ids, refs, fields = number + 1, 0, {}, {}, {}
local now = string.format('%013.0f', p.now)
for i = 1, incoming.count do
  local at = 9 + (i - 1) * incoming.stride
  number = number + 1
  local id = known and ARGV[at + incoming.id] or ''
  if id ~= '' and known[id] then
    dropped = dropped + 1
  else
    if id ~= '' then
      known[id] = true
      ids[#ids + 1] = p.now
      ids[#ids + 1] = id
    end
    local level = incoming.level and ARGV[at + incoming.level] or ''
    level = level == '' and '0' or level
    local ttl = incoming.ttl and tonumber(ARGV[at + incoming.ttl]) or NEVER
    local expires = math.min(p.now + math.min(ttl, p.ttl), NEVER)
    local record, payload = nil, ARGV[at + incoming.stride - 1]
    if #routes[i] > 0 then
      record = 'a' .. level .. now .. payload
      if expires < NEVER then
        record = 'x' .. level .. now .. string.format('%013.0f', expires) .. payload
      end
      for j = 1, #routes[i] do
        local target = routes[i][j]
        target.placed[#target.placed + 1] = tonumber(level) * BAND + number
        target.placed[#target.placed + 1] = number
        local till = math.min(expires, p.now + target.ttl)
        if till < expires then
          -- It lives shorter here than its record says.
          target.entered[#target.entered + 1] = number
          target.entered[#target.entered + 1] = string.format('            %sa-00000%013.0f%d;;', level, till, #record)
        end
        await_expiry(target, number, till)
        if #record > target.biggest then
          target.biggest, target.changed.biggest = #record, #record
        end
      end
      if #routes[i] > 1 then
        refs[#refs + 1] = number
        refs[#refs + 1] = #routes[i]
      end
    end
    if record then
      local key = bucket(p.keys, number)
      fields[key] = fields[key] or {}
      fields[key][#fields[key] + 1] = number
      fields[key][#fields[key] + 1] = record
      p.bytes = p.bytes + #record
      if #record > p.biggest then
        p.biggest, p.changed.biggest = #record, #record
      end
    end
  end
end
for key, list in pairs(fields) do
  variadic('HSET', key, list)
end
if #refs > 0 then
  variadic('HSET', p.refs, refs)
end
if #ids > 0 then
  variadic('ZADD', p.dedup, ids)
end
for i = 1, #targets do
  local target = targets[i]
  flush(target)
  for name, value in pairs(target.changed) do
    redis.call('HSET', target.state, name, value)
  end
  if target.waiting then
    wake(target)
  end
end
finish(p, string.format('%.0f %d', first, dropped))
return { p.more, first, dropped }
