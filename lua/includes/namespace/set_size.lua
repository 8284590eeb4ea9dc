-- Stores the largest size of a queue or topic in megabytes, 0 if it is gone, and adds the change to the size of the
-- namespace.
local function set_size(key, name, before, after)
  if after ~= before then
    redis.call('HINCRBY', key, 'megabytes', string.format('%.0f', after - before))
    if after > 0 then
      redis.call('HSET', key, 'size:' .. name, string.format('%.0f', after))
    else
      redis.call('HDEL', key, 'size:' .. name)
    end
  end
end
