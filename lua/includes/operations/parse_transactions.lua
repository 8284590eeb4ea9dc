-- Takes the transactions of a call with these keys and arguments apart. Returns a list of transactions; or nil and a
-- refusal. Each transaction is a list of operations. `from` is the place of the first key of the subscriptions that it
-- publishes to, and `till` is the place after the last of them.
--
-- Also returns the place of the first argument after the transactions, which is a grant if there is one: a grant has
-- blanks, and a number has none; and whether the first participant releases messages.
--
-- Refusals: BADCALL
-- @use key_count
-- @use refuse whole_number inside
local function parse_transactions(participants, count, keys, argv)
  local list, at, from, total = {}, 8, KEY_COUNT * count + 1, 0
  local gave_back = false
  while at <= #argv and not string.find(argv[at], ' ', 1, true) do
    local size, theirs = whole_number(argv[at], 1, 100), whole_number(argv[at + 1], 0, #keys)
    total = total + (size or 0)
    if not size or not theirs or #list == 100 or total > 1000 then
      return nil, refuse('BADCALL', 'transactions')
    end
    local transaction = { from = from, till = from + theirs }
    at, from = at + 2, from + theirs
    for i = 1, size do
      local place, length = whole_number(argv[at], 1, count), whole_number(argv[at + 2], 1, #argv - at - 2)
      if not place or not length then
        return nil, refuse('BADCALL', 'operations')
      end
      local own = {}
      for j = 1, length do
        own[j] = argv[at + 2 + j]
      end
      gave_back = gave_back or place == 1 and argv[at + 1] == 'abandon'
      transaction[i] = { of = participants[place], name = argv[at + 1], argv = own }
      at = at + 3 + length
    end
    list[#list + 1] = transaction
  end
  if #list == 0 or from ~= #keys + 1 then
    return nil, refuse('BADCALL', 'targets')
  end
  return list, at, gave_back
end
