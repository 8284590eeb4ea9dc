-- Returns the runs in a text that name_runs has written, each with its prefix, its first and its last number; and how
-- many names they contain. Returns nil if the text is malformed, or if it has no name or more than 1,000 names.
-- @use whole_number
local function parse_runs(text)
  local runs, total = {}, 0
  for run in string.gmatch(text .. ',', '([^,]*),') do
    local prefix, first, dash, last = string.match(run, '^([dt]?)([1-9]%d*)(%-?)(%d*)$')
    first = whole_number(first, 1, 999999999999999)
    if dash == '' and last == '' then
      last = first
    else
      last = dash == '-' and whole_number(last, first or 1, 999999999999999)
    end
    if not first or not last or total + last - first >= 1000 then
      return nil
    end
    runs[#runs + 1], total = { prefix = prefix, first = first, last = last }, total + last - first + 1
  end
  return runs, total
end
