-- Returns the record with this number, or LOST_RECORD if scripts cannot read it.
-- @use readable record_key
local function read_record(keys, number)
  return readable(redis.call('HGET', record_key(keys, tonumber(number)), number))
end
