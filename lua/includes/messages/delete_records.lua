-- Deletes the records of messages that are gone for good, and counts the bytes that this frees. A record that several
-- subscriptions refer to is deleted with the last of these references.
-- @use group_records write_many
local function delete_records(p, numbers, sizes, as_numbers)
  local last, freed = numbers, 0
  if p.shared then
    last, as_numbers = {}, nil
    for i = 1, #numbers do
      local others = redis.call('HGET', p.refs, numbers[i])
      if not others then
        last[#last + 1] = numbers[i]
        freed = freed + sizes[i]
      elseif others == '2' then
        redis.call('HDEL', p.refs, numbers[i])
      else
        redis.call('HINCRBY', p.refs, numbers[i], -1)
      end
    end
  elseif type(sizes) == 'number' then
    freed = sizes
  else
    for i = 1, #numbers do
      freed = freed + sizes[i]
    end
  end
  if #last > 0 then
    for key, group in pairs((group_records(p.keys, last, as_numbers))) do
      write_many('HDEL', key, group)
    end
  end
  p.bytes = p.bytes - freed
end
