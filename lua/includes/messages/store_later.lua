-- Collects records, each after its number: the next `flush` stores them in the hash `key`. The caller leaves the list
-- to this function.
local function store_later(p, key, fields)
  p.stored = p.stored or {}
  local list = p.stored[key]
  if not list then
    p.stored[key] = #fields > 0 and fields or nil
    return
  end
  local n = #list
  for i = 1, #fields do
    list[n + i] = fields[i]
  end
end
