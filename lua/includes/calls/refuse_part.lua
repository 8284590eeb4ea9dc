-- Returns a refusal of an operation of a transaction as the refusal of the whole. The place of the operation comes
-- before the detail: `#2` is the second operation.
local function refuse_part(place, refusal)
  local code, detail = string.match(refusal.err, '^(%S+) (.*)$')
  return redis.error_reply(string.format('%s #%d ', code, place) .. detail)
end
