-- Keys with few entries are packed by the server, which then goes through all of them to find one. A name of more than 64
-- bytes has it unpack a key for good. This one stands in `order` and in `entries` from a partition's first day to its last: it
-- is no message's, no caller can say it, and its band is behind all others. Without it a partition is slower, and no worse.
-- @use band
local SENTINEL = { name = string.rep('0', 65), score = 31 * BAND }
