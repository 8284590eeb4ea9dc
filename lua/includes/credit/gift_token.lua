-- Returns the token of a gift: the prefix and three characters for the serial, as engine/_lock_tokens.py has them.
local function gift_token(prefix, serial)
  local letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  local first, second, third = math.floor(serial / 4096) % 64 + 1, math.floor(serial / 64) % 64 + 1, serial % 64 + 1
  return prefix .. string.sub(letters, first, first) .. string.sub(letters, second, second) .. string.sub(letters, third, third)
end
