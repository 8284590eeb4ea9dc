-- How many messages of a session who has its lock may have out at once.
local MOST_HELD = 1000
