-- Returns a table that says for each message id of a call whether the id was seen within the window of duplicate
-- detection. Returns nil if the entity does not detect duplicates. Each call also deletes ids that are older than the
-- window: up to twice the number of messages in the call, plus ten. So old ids do not pile up.
-- @use write_many
local function known_message_ids(p, argv, incoming)
  if not incoming.id or not p.window then
    return nil
  end
  local old = redis.call('ZRANGE', p.dedup, '-inf', p.now - p.window, 'BYSCORE', 'LIMIT', 0, 2 * incoming.count + 10)
  if #old > 0 then
    write_many('ZREM', p.dedup, old)
  end
  local ids, known = {}, {}
  for i = 1, incoming.count do
    ids[i] = argv[incoming.at + (i - 1) * incoming.stride + incoming.id]
  end
  local seen = redis.call('ZMSCORE', p.dedup, unpack(ids))
  for i = 1, incoming.count do
    known[ids[i]] = ids[i] ~= '' and seen[i] and tonumber(seen[i]) > p.now - p.window
  end
  return known
end
