#!lua flags=no-writes
-- Reads the libraries of functions that clients of a namespace have named.
--
-- KEYS[1] libraries  as in name_library.lua
--
-- Result: { the time in ms, then for each library its name and the time in ms when a client named it last }
-- Refusals: none
-- Facts: repeatable
-- @use server_time
local result, named = { tonumber(server_time()) }, redis.call('HGETALL', KEYS[1])
for i = 1, #named, 2 do
  local at = tonumber(named[i + 1])
  if at and at >= 0 and at <= 253402300799999 and string.find(named[i], '^sb_%x+$') then
    result[#result + 1], result[#result + 2] = named[i], at
  end
end
return result
