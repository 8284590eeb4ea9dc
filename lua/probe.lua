#!lua
-- Proves that a caller can do here what the broker does: run a script, read the clock, and write under the namespace's prefix.
-- The key goes away by itself.
--
-- KEYS[1] probe     string, the number of probes in the last minute
-- ARGV[1] run_id    of the server process, put in by the transport
--
-- Result: { server time in microseconds, the number of probes, the run id as the script received it }
-- Refusals: none
local now = redis.call('TIME')
local count = redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], 60)
return { now[1] * 1000000 + now[2], count, ARGV[1] }
