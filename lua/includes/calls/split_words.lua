-- The words of a text, as a list: how results are kept.
local function split_words(text)
  local list = {}
  for word in string.gmatch(text, '%S+') do
    list[#list + 1] = word
  end
  return list
end
