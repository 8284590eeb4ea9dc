-- The stamps of a record with another one before them. Only the last few are kept: by them a repetition is recognised.
local function add_stamp(stamps, stamp)
  local MOST = 16
  return string.sub(stamp .. ',' .. stamps, 1, MOST * (#stamp + 1) - 1)
end
