-- Returns the serial of the token of a gift, as gift_letters has written it.
local function serial_of(token)
  local letters, serial = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_', 0
  for i = 9, 11 do
    serial = serial * 64 + string.find(letters, string.sub(token, i, i), 1, true) - 1
  end
  return serial
end
