#!lua
-- Sets or removes the state of a session: bytes that later receivers of the session can read, and that outlive its
-- messages.
--
-- KEYS[1-30] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    session     the name of the session, with `=` in front
-- ARGV[8]    token       of the lock on the session
-- ARGV[9]    given       1, or 0 to remove the state
-- ARGV[10]   state       the new state
--
-- Result: { more }
-- Refusals: call, SESSIONS (the entity has no sessions), LOST (the token does not hold the lock on the session now),
--   TOOLARGE (the state is larger than a message may be), QUOTA (the entity is full; the detail gives its bytes and its
--   quota), DUE (the entity is full, but due work had to be done first)
-- @use advance answer_repetition begin finish has_overdue parse_session parse_token refuse refuse_while_due
-- @use session_lock_end turns
local p, refusal = begin(KEYS, ARGV, 'set_state', 10, false)
if not p then
  return refusal
end
if p.repeated then
  return answer_repetition(p, { 0 })
end
local session, unfit = parse_session(p, ARGV[7], true)
local token = parse_token(ARGV[8])
if unfit or not token or ARGV[9] ~= '1' and (ARGV[9] ~= '0' or ARGV[10] ~= '') then
  return unfit or refuse('BADCALL', 'state')
end
if not session_lock_end(p, session, token) then
  return refuse('LOST', 'session')
end
local field, stated = '=' .. session, session .. '\255k'
local limits = redis.call('HMGET', p.store, unpack(STORE))
local growth = #ARGV[10] - redis.call('HSTRLEN', p.states, field)
if #ARGV[10] > tonumber(limits[STORE.largest]) then
  return refuse('TOOLARGE', '0')
end
local function full(bytes)
  limits[STORE.bytes] = bytes
  return growth > 0 and tonumber(bytes) + growth > tonumber(limits[STORE.quota])
end
if full(limits[STORE.bytes]) then
  return has_overdue(p) and refuse_while_due(p, full) or refuse('QUOTA', limits[STORE.bytes] .. ' ' .. limits[STORE.quota])
end

advance(p, 100)
if ARGV[9] == '1' then
  redis.call('HSET', p.states, field, ARGV[10])
  redis.call('ZADD', p.turns, TURNS.stated + p.now, 't' .. session)
  redis.call('ZADD', p.index, 0, stated)
else
  redis.call('HDEL', p.states, field)
  redis.call('ZREM', p.turns, 't' .. session)
  redis.call('ZREM', p.index, stated)
end
p.bytes = p.bytes + growth
redis.call('HINCRBY', p.state, 'kept', growth)
finish(p, '')
return { p.more }
