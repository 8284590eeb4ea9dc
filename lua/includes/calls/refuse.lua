-- Returns a refusal: an error reply of a code and a detail. A script that returns a refusal has written nothing. Every
-- refusal needs a detail, because an error reply of one word would count as a text without a code.
local function refuse(code, detail)
  return redis.error_reply(code .. ' ' .. detail)
end
