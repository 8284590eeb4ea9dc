-- Notes the size of a message, changed properties included, if it is the largest that the partition has had.
local function note_size(p, size)
  if size > p.biggest then
    p.biggest, p.marked = size, true
  end
end
