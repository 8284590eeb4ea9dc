-- Returns the reply to a repeated receive: the messages that its token holds now, and the time until its lock ends. A
-- token never holds more messages than its call gave out. So the messages that are read here fit into the room of that
-- call.
-- @use messages_again next_due
local function repeat_receive(p, token, said)
  local names, records, extras, till = messages_again(p, token, said)
  if till == 0 then
    return { 0, next_due(p), p.lock, {}, {}, {} }
  end
  return { 0, 0, till - p.logical, names, records, extras }
end
