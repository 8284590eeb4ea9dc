-- Checks the arguments of a transfer, from `at` on: the columns of the messages, their destination, and then the
-- messages. The columns are l level, or nothing. The destination is a text that only clients read: the changed
-- properties of each message, which contain the destination. The destination's own limits are checked when
-- the messages arrive there. Returns what apply_transfer needs; or nil and a refusal.
-- @use levels
-- @use refuse refuse_full store_limits whole_number inside
local function check_transfer(p, argv, at)
  local columns, destination = argv[at], argv[at + 1] or ''
  local stride = #columns + 1
  local count, level = (#argv - at - 1) / stride, columns == 'l'
  if count < 1 or count > 1000 or count % 1 ~= 0 or not level and columns ~= ''
    or destination == '' or #destination > 65536 then
    return nil, refuse('BADCALL', 'transfer')
  end
  local total = 0
  for i = 1, count do
    local first = at + 2 + (i - 1) * stride
    if level and argv[first] ~= '' and not whole_number(argv[first], 0, LEVELS - 1) then
      return nil, refuse('BADCALL', string.format('message %d', i - 1))
    end
    total = total + 15 + #argv[first + stride - 1] + #destination
  end
  local refused = refuse_full(p, store_limits(p), total)
  if refused then
    return nil, refused
  end
  return { at = at + 2, stride = stride, count = count, level = level, destination = destination, bytes = total }
end
