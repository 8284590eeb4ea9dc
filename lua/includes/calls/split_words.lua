-- Splits a text into words. Results are stored as such texts.
local function split_words(text)
  local list = {}
  for word in string.gmatch(text, '%S+') do
    list[#list + 1] = word
  end
  return list
end
