-- Deletes held messages for good. `held` is the result of held_messages.
-- @use count_held delete_later index_remove most_held release_from_lease
local function apply_complete(p, held)
  for g = 1, #held do
    local mine = held[g]
    local names, entries, stored = mine.names, mine.entries, mine.names
    local count, last, size, record, changes, sizes = #names, nil, nil, nil, nil, {}
    if mine.session and count > 0 and count_held(p, mine.session) >= MOST_HELD then -- its holder may be given more now
      p.moved, p.roused = true, p.roused or {}
      p.roused[mine.session] = true
    end
    for i = 1, count do
      local text = entries[i]
      if text ~= last then -- messages of one size that were given out together have equal entries: parse one
        last = text
        size, record, changes = string.match(text, '^(%d+);(%d*);%d*;()', 34)
        size, changes = size + 0, #text - changes + 1
        if record ~= '' and stored == names then
          stored = { unpack(names, 1, i - 1) }
        end
      end
      if stored ~= names then
        stored[i] = record == '' and names[i] or record
      end
      sizes[i] = size
      if mine.session then
        index_remove(p, mine.session, 'h', tonumber(names[i]))
      end
      if changes > 0 then
        p.bytes = p.bytes - changes
      end
    end
    for i = 1, p.noted and count or 0 do
      p.noted[#p.noted + 1] = 'c' .. names[i]
    end
    if count > 0 then
      delete_later(p, names, stored, sizes, mine.numbers)
    end
    release_from_lease(p, mine, count)
  end
end
