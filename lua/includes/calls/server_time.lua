-- Returns the time of the server in ms, as text.
local function server_time()
  local time = redis.call('TIME')
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
