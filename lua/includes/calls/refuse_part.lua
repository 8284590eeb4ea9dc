-- Returns a refusal of a part of a transaction as the refusal of the whole. The part comes before the detail: `#2` is
-- the second operation, and `@2` is the second participant.
local function refuse_part(part, place, refusal)
  local code, detail = string.match(refusal.err, '^(%S+) (.*)$')
  return redis.error_reply(string.format('%s %s%d ', code, part, place) .. detail)
end
