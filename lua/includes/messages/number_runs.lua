-- Returns message numbers as runs, in the given order: 4, 5, 6, 9 is "4-6,9". Each run begins with `prefix`, the prefix
-- of the side.
-- @use number_text
local function number_runs(prefix, numbers)
  local list, first, last = {}, numbers[1], numbers[1]
  for i = 2, #numbers + 1 do
    local number = numbers[i]
    if number ~= last + 1 then
      list[#list + 1] = prefix .. number_text[first] .. (first == last and '' or '-' .. number_text[last])
      first = number
    end
    last = number
  end
  return table.concat(list, ',')
end
