#!lua flags=no-writes
-- Lists the names of sessions that have a state, messages that can be received, or held messages. With `since`, the
-- script lists the sessions whose state was set at that time or later, in the order of the times when it was set.
--
-- KEYS[1-35] partition   in the order of includes/calls/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7]    wanted      the largest number of sessions
-- ARGV[8]    after       the session after which the list continues, with `=` in front, or nothing at the beginning.
--   With `since`, the number of sessions that were listed before and whose state was set at exactly that time
-- ARGV[9]    since       the time in ms, or nothing to list the sessions by name
--
-- Result: { 1 if work is due whose effects may change the list; the names; the times; the place }. With `since`, the
--   times are those when the state of each session was set, and the place is empty. Without `since`, there are no
--   times, and the place is the `after` of the next call; it is empty at the end.
-- Refusals: call, SESSIONS (the entity has no sessions)
-- Facts: repeatable, laneless
-- @use has_overdue never parse_session refuse turns whole_number
local wanted, since, skip = whole_number(ARGV[7], 1, 1000), whole_number(ARGV[9], 0, NEVER), 0
if not p.index then
  return refuse('SESSIONS', 'none')
end
local after, unfit
if ARGV[9] == '' then
  after, unfit = parse_session(p, ARGV[8])
else
  skip = whole_number(ARGV[8], 0, 999999999)
end
if unfit or not wanted or not skip or ARGV[9] ~= '' and not since then
  return unfit or refuse('BADCALL', 'list')
end

local names, times, more = {}, {}, has_overdue(p) and 1 or 0
if since then
  local found = redis.call('ZRANGE', p.turns, string.format('%.0f', TURNS.stated + since), '+inf', 'BYSCORE', 'LIMIT', skip, wanted,
    'WITHSCORES')
  for i = 1, #found, 2 do
    names[#names + 1] = string.sub(found[i], 2)
    times[#times + 1] = string.format('%.0f', tonumber(found[i + 1]) - TURNS.stated)
  end
  return { more, names, times, '' }
end

-- Take one step for each session. The letter of its first member in the index tells whether the session belongs in the
-- list.
local place, looked, onwards = after and '(' .. after .. '\255\255' or '-', 0, ''
while #names < wanted and looked < 4 * wanted do
  local first = redis.call('ZRANGE', p.index, place, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not first then
    return { more, names, times, '' }
  end
  local ends = string.find(first, '\255', 1, true)
  local session = string.sub(first, 1, ends - 1)
  if string.byte(first, ends + 1) <= 107 then -- k: a session with the letter a, h or k belongs in the list
    names[#names + 1] = session
  end
  looked, place, onwards = looked + 1, '(' .. session .. '\255\255', '=' .. session
end
return { more, names, times, onwards }
