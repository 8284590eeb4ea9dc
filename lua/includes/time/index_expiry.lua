-- Makes sure that a new message will expire in time. Most messages need no index. If each message expires no earlier
-- than all messages before it, the first message is the next to expire. The field `head`, a lower bound of the time
-- when it expires, is then enough. A message is indexed only if it expires earlier than a message before it.
-- @use add_pair due_name never
local function index_expiry(p, number, expires)
  if expires > NEVER then
    expires = NEVER
  end
  if expires >= p.horizon then
    if expires > p.horizon then
      p.horizon, p.marked = expires, true
    end
    if expires < p.head then
      p.head, p.marked = expires, true
    end
  elseif expires < NEVER then
    add_pair(p.awaited, expires, due_name('e', number))
  end
end
