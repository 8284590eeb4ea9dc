-- Returns whether a rank, with the key of its word, comes before another one. Of equal ranks, the lower key is first.
local function comes_before(rank, key, other, other_key)
  return rank < other or rank == other and key < other_key
end
