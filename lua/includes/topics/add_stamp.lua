-- Returns the stamps of a record with a new one in front. Only the last few are kept, to recognise repetitions.
local function add_stamp(stamps, stamp)
  local MOST = 16
  return string.sub(stamp .. ',' .. stamps, 1, MOST * (#stamp + 1) - 1)
end
