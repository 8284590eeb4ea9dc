-- Parses the entry of a message: the data that are stored beside its record. Settlement reads the entry and never the
-- body.
--
--   1-11   the token of the lock that holds it, or blanks
--   12     a blank, or how often its holder ended, or lost the lock, since the last settlement: a character from 1 to >
--          (14 or more). 0 says once too, but that the message is a suspect, as it is from 2 on (see
--          includes/time/lapse_message.lua). The character is higher by 64 if the message has a lease of its own too
--          (see includes/locks/still_held.lua)
--   13     level
--   14     home: a active, f deferred, x a transfer; i active and g deferred, if the last work on it was interrupted
--   15     the reason why it is a dead letter; from 1 to >, it is how often its holder ended, or lost the lock, at last
--   16-20  the number of failed deliveries
--   21-33  when it expires
--   34-    size;number of its record, or empty;the number that it had before it died, or empty if that is the number of
--          its record;changed properties
local function entry(text)
  local mark, size, record, before, at = string.byte(text, 12), string.match(text, '^(%d+);(%d*);(%d*);()', 34)
  return {
    mark = mark == 32 and ' ' or string.char(mark % 64),
    level = string.sub(text, 13, 13),
    home = string.sub(text, 14, 14),
    reason = string.sub(text, 15, 15),
    failures = tonumber(string.sub(text, 16, 20)),
    expires = string.sub(text, 21, 33),
    size = tonumber(size),
    record = record,
    before = before,
    changes = string.sub(text, at),
  }
end
