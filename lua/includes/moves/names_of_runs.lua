-- Returns the names of the messages in a text of runs; or nil if parse_runs refuses the text.
-- @use parse_runs
local function names_of_runs(text)
  local runs, names = parse_runs(text), {}
  for i = 1, runs and #runs or 0 do
    local run = runs[i]
    for number = run.first, run.last do
      names[#names + 1] = run.prefix .. string.format('%.0f', number)
    end
  end
  return runs and names
end
