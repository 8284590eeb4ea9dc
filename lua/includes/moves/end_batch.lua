-- Forgets the outstanding batch for a destination. `batches` lists the destinations of all batches. Returns the list of
-- the others.
-- @use split_words
local function end_batch(p, destination, batches)
  local others = {}
  for _, word in ipairs(split_words(batches)) do
    if word ~= destination then
      others[#others + 1] = word .. ' '
    end
  end
  if #others == 0 then
    redis.call('HDEL', p.lasting, 'b:' .. destination, 'batches')
    return ''
  end
  redis.call('HDEL', p.lasting, 'b:' .. destination)
  redis.call('HSET', p.lasting, 'batches', table.concat(others))
  return table.concat(others)
end
