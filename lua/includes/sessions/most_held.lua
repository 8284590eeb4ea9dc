-- The largest number of messages of a session that its holder may have locked at once.
local MOST_HELD = 1000
