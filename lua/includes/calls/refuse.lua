-- A refusal: an error reply of a code and what it is about. Whoever returns it has written nothing. A reply of one word alone
-- would be taken for the text of an error without a code.
local function refuse(code, detail)
  return redis.error_reply(code .. ' ' .. detail)
end
