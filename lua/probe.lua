#!lua flags=allow-oom
-- Tests whether the caller is permitted to do what the broker does: run a script, read the clock, and write under the
-- namespace's prefix. The key expires by itself.
--
-- KEYS[1] probe     string, the number of probes; it expires one minute after the last probe
-- ARGV[1] run_id    of the server process, put in by the transport
--
-- Result: { server time in microseconds, the number of probes, the run id as the script received it }
-- Refusals: none
-- Facts: repeatable
local now = redis.call('TIME')
local count = redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], 60)
return { now[1] * 1000000 + now[2], count, ARGV[1] }
