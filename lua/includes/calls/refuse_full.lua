-- Returns a refusal if the entity has no room for this number of bytes more; otherwise nil. Due work that is not done
-- yet may make room: then the call does more of it, and the caller makes the same call again. `limits` is the result of
-- store_limits. In a transaction, `p.pending` is the number of bytes that the operations before this one store. In a
-- call of several transactions, the earlier ones may have deleted messages, or stored messages that are due already:
-- this is written first.
--
-- The size of a message whose record was lost may be unknown. Its bytes are then counted although they are not there,
-- until a full queue that stores no record corrects the number.
--
-- Refusals: QUOTA (the entity is full; the detail gives its bytes and its quota), DUE (due work had to be done first)
-- @use flush has_overdue refuse refuse_while_due
local function refuse_full(p, limits, growth)
  -- Return whether there is no room beside this number of bytes.
  local function full(bytes)
    limits[STORE.bytes] = bytes
    return growth > 0 and bytes + (p.pending or 0) + growth > limits[STORE.quota] + 0
  end

  if not full(limits[STORE.bytes]) then
    return nil
  end
  if p.advanced then
    for i = 1, #p.beside do
      if p.beside[i].store == p.store then
        flush(p.beside[i])
      end
    end
    if not full(redis.call('HGET', p.store, 'bytes')) then
      return nil
    end
  end
  local kept, empty = redis.call('HGET', p.state, 'kept') or '0', not p.topic
  for i = 11, 26 do
    empty = empty and redis.call('HLEN', p.keys[i]) == 0
  end
  if empty and tonumber(limits[STORE.bytes]) > tonumber(kept) then
    redis.call('HSET', p.store, 'bytes', kept)
    if not full(kept) then
      return nil
    end
  end
  return has_overdue(p) and refuse_while_due(p, full) or refuse('QUOTA', limits[STORE.bytes] .. ' ' .. limits[STORE.quota])
end
