-- Splits a text into words. The results of calls are stored as texts of words.
local function split_words(text)
  local list = {}
  for word in string.gmatch(text, '%S+') do
    list[#list + 1] = word
  end
  return list
end
