-- The largest number of messages of a session that its holder may have locked at the same time.
local MOST_HELD = 1000
