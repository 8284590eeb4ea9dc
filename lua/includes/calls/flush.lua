-- Writes the collected changes. One command writes a list; a long list needs several commands.
-- @use add_pair delete_records number_text write_many
local function flush(p)
  if #p.taken > 0 then
    write_many('ZREM', p.order, p.taken)
    p.taken = {}
  end
  if p.gone then
    local gone = p.gone
    write_many('ZREM', p.order, gone.names)
    write_many('HDEL', p.entries, gone.names)
    delete_records(p, gone.stored, gone.sizes, gone.numbers)
    p.gone = nil
  end
  if #p.placed > 0 then
    write_many('ZADD', p.order, p.placed)
    p.placed, p.moved = {}, true
  end
  if #p.forgotten > 0 then
    write_many('HDEL', p.entries, p.forgotten)
    p.forgotten = {}
  end
  if #p.entered > 0 then
    write_many('HSET', p.entries, p.entered)
    p.entered = {}
  end
  if p.released then
    local left, ended = {}, {}
    for token, lease in pairs(p.released) do
      if lease.left > 0 then
        add_pair(left, token, string.format('%s %d %s', lease.till, lease.left, lease.runs))
      else
        ended[#ended + 1] = token
      end
    end
    if #left > 0 then
      write_many('HSET', p.leases, left)
    end
    if #ended > 0 then
      write_many('HDEL', p.leases, ended)
      write_many('ZREM', p.locks, ended)
    end
    p.released = nil
  end
  if p.stored then
    for key, fields in pairs(p.stored) do
      write_many('HSET', key, fields)
    end
    p.stored = nil
  end
  if #p.unawaited > 0 then
    write_many('ZREM', p.due, p.unawaited)
    p.unawaited = {}
  end
  if #p.awaited > 0 then
    write_many('ZADD', p.due, p.awaited)
    for i = 1, #p.awaited, 2 do
      if p.awaited[i] < p.next_due then
        p.next_due, p.marked = p.awaited[i], true
      end
    end
    p.awaited = {}
  end
  if p.index then
    if #p.index_removed > 0 then
      write_many('ZREM', p.index, p.index_removed)
      p.index_removed = {}
    end
    if #p.index_added > 0 then
      write_many('ZADD', p.index, p.index_added)
      p.index_added = {}
    end
  end
  if p.dropped then
    delete_records(p, p.dropped, p.dropped_sizes)
    p.dropped, p.dropped_sizes = nil, nil
  end
  if p.bytes ~= 0 then
    -- The size of a message whose record was lost may be unknown. The number of bytes is then wrong (see refuse_full).
    if redis.call('HINCRBY', p.store, 'bytes', number_text[p.bytes]) < 0 then
      redis.call('HSET', p.store, 'bytes', 0)
    end
    p.bytes = 0
  end
end
