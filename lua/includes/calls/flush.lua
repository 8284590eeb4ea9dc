-- Writes the collected changes. One command writes a list; a long list needs several commands.
-- @use delete_records write_many
local function flush(p)
  if #p.taken > 0 then
    write_many('ZREM', p.order, p.taken)
    p.taken = {}
  end
  if #p.placed > 0 then
    write_many('ZADD', p.order, p.placed)
    p.placed = {}
  end
  if #p.forgotten > 0 then
    write_many('HDEL', p.entries, p.forgotten)
    p.forgotten = {}
  end
  if #p.entered > 0 then
    write_many('HSET', p.entries, p.entered)
    p.entered = {}
  end
  if #p.unawaited > 0 then
    write_many('ZREM', p.due, p.unawaited)
    p.unawaited = {}
  end
  if #p.awaited > 0 then
    write_many('ZADD', p.due, p.awaited)
    for i = 1, #p.awaited, 2 do
      if p.awaited[i] < p.next_due then
        p.next_due = p.awaited[i]
        p.changed.next_due = p.next_due
        p.sooner = math.min(p.sooner, p.next_due)
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
  if #p.dropped > 0 then
    delete_records(p, p.dropped, p.dropped_sizes)
    p.dropped, p.dropped_sizes = {}, {}
  end
  if p.bytes ~= 0 then
    redis.call('HINCRBY', p.store, 'bytes', p.bytes)
    p.bytes = 0
  end
end
