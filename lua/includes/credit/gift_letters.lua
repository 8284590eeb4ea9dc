-- Returns the three characters after the prefix in the token of a gift, which say its serial, as
-- engine/_lock_tokens.py has them.
-- @remember 1024
local function gift_letters(serial)
  local letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  local first, second, third = math.floor(serial / 4096) % 64 + 1, math.floor(serial / 64) % 64 + 1, serial % 64 + 1
  return string.sub(letters, first, first) .. string.sub(letters, second, second) .. string.sub(letters, third, third)
end
