-- Returns the names of messages in a text of runs, as name_runs writes it; or nil if the text is malformed, or if it
-- has no name or more than 1,000 names.
-- @use whole_number
local function names_of_runs(text)
  local names = {}
  for run in string.gmatch(text .. ',', '([^,]*),') do
    local prefix, first, dash, last = string.match(run, '^([dt]?)([1-9]%d*)(%-?)(%d*)$')
    first = whole_number(first, 1, 999999999999999)
    if dash == '' and last == '' then
      last = first
    else
      last = dash == '-' and whole_number(last, first or 1, 999999999999999)
    end
    if not first or not last or #names + last - first >= 1000 then
      return nil
    end
    for number = first, last do
      names[#names + 1] = prefix .. string.format('%.0f', number)
    end
  end
  return names
end
