-- Settles messages, and takes the grants that follow them. `list` and `after` are the results of lock_groups. `apply`
-- settles held messages, and returns the names of those that it leaves, if it may leave some. `how` is for
-- apply_release. The result for the lane is the names of lost messages, and a bar and these others, if there may be
-- some. Returns the reply.
-- @use advance end_settlement held_messages parse_grants refuse split_words
local function settle_messages(p, argv, list, after, apply, how)
  local grants = list and parse_grants(p, argv, after)
  if not grants then
    return refuse('BADCALL', 'groups')
  end
  local lost, bar, left = string.match(p.repeated or '', '^([^|]*)(|?)(.*)$')
  lost, left = split_words(lost), bar ~= '' and split_words(left) or nil
  if not p.repeated then
    advance(p, 100)
    left = apply(p, held_messages(p, list, {}, lost), argv, how)
  end
  local said = table.concat(lost, ' ') .. (left and '|' .. table.concat(left, ' ') or '')
  return end_settlement(p, said, { 0, lost, left }, grants, how ~= nil and how ~= 'f')
end
