#!lua flags=allow-oom
-- Remembers that a client uses a library of functions. At most 1,000 names are remembered: a new one takes the place of
-- names that no client has given for seven days.
--
-- KEYS[1] libraries  hash of the namespace: for each library the time in ms when a client named it last
-- ARGV[1] name
--
-- Result: nothing
-- Refusals: BADCALL, FULL (there are too many names; the detail is the most)
-- Facts: repeatable
-- @use make_room refuse server_time
local name = ARGV[1]
if not string.find(name, '^sb_%x+$') or #name > 50 then
  return refuse('BADCALL', 'library')
end
local now = tonumber(server_time())
if redis.call('HEXISTS', KEYS[1], name) == 0 then
  local refusal = make_room(KEYS[1], function(_, named)
    return (tonumber(named) or 0) < now - 604800000
  end)
  if refusal then
    return refusal
  end
end
redis.call('HSET', KEYS[1], name, string.format('%.0f', now))
