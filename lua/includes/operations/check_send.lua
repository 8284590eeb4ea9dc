-- Checks the arguments of a send, from `at` on: the columns of the messages, and then the messages. Returns what
-- apply_send needs; or nil and a refusal.
-- @use check_messages refuse
local function check_send(p, argv, at)
  local incoming, refused = check_messages(p, argv, argv[at], 'tlid', at + 1)
  if incoming and p.index and incoming.without then
    return nil, refuse('SESSIONS', string.format('%d', incoming.without))
  end
  return incoming, refused
end
