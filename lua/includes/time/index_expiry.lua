-- Makes sure that a new message's expiry is noticed. Most messages need no index: as long as each expires no earlier
-- than all before it, the first of them is the next to expire, and `head`, a lower bound of that time, is enough. Only
-- a message that expires earlier than one before it is indexed.
-- @use due_name never
local function index_expiry(p, number, expires)
  if expires > NEVER then
    expires = NEVER
  end
  if expires >= p.horizon then
    if expires > p.horizon then
      p.horizon = expires
      p.changed.horizon = expires
    end
    if expires < p.head then
      p.head = expires
      p.changed.head = expires
      p.sooner = math.min(p.sooner, expires)
    end
  elseif expires < NEVER then
    p.awaited[#p.awaited + 1] = expires
    p.awaited[#p.awaited + 1] = due_name('e', number)
  end
end
