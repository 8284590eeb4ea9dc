-- Chooses the end of the next range: the largest number with at most `rows` ready messages above the floor. The bytes
-- of these messages are estimated by the mean size of the first 500; at least one message is taken. Returns the floor
-- if there is nothing.
-- @use band end_of_range first_away message_sizes read_many ready_messages
local function choose_end(p, pin, rows, room)
  local away = first_away(p)
  local most = away and away - 1 or BAND - 1
  local names = ready_messages(p, pin.floor, most, math.min(rows, 500))
  if #names == 0 then
    return pin.floor
  end
  local sizes, bytes = message_sizes(p, names, read_many('HMGET', p.entries, names), room)
  if #sizes < #names then
    return tonumber(names[#sizes])
  end
  local fit = math.floor(room * #sizes / bytes)
  return (end_of_range(p, pin.floor, most, math.max(#names, math.min(rows, fit))))
end
