-- What a server holds in a few small entries it packs, and then goes through all of them to find one. A name longer than 64 bytes
-- has it unpack them for good: so this one stands in `order` and in `entries` from the first day of a partition to its last. It is
-- the name of no message, no caller can say it, and its band is behind all others. It only makes the partition faster.
-- @use band
local SENTINEL = { name = string.rep('0', 65), score = 31 * BAND }
